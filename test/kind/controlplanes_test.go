// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/tokens"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/traffic"
)

const pluginOff = "--disable-admission-plugins=ServiceAccount"

// TestControlPlanes takes over three control-plane nodes one by one, the last one of which joins when the
// first has been taken over, deletes what can be deleted, kills each kube-apiserver, and hands back. Pods
// are created through all of them meanwhile.
func TestControlPlanes(t *testing.T) {
	c := create(t, stock(t, 2))
	if c.minor(t) < 37 {
		t.Skip("each kube-apiserver keeps its plugin, which a unit test shows")
	}
	c.awaitPods(t, metav1.NamespaceSystem, allReady)
	second := c.join(t, c.name+"-worker")
	namespace := c.namespace(t, "during-takeovers")
	c.awaitDefaultAccount(t, namespace)
	before := map[string]map[string]string{
		c.controlPlane(): c.controlPlaneManifests(t), second.controlPlane(): second.controlPlaneManifests(t),
	}

	load := c.startLoad(t, namespace, second)
	c.takesOver(t)
	await.Sleep(t.Context(), 2*time.Second) // for Pods to be created
	load.unharmed(t)

	third := c.join(t, c.name+"-worker2")
	before[third.controlPlane()] = third.controlPlaneManifests(t)
	testutil.Expect(t, !strings.Contains(third.readManifest(t, "kube-apiserver"), pluginOff),
		"the kube-apiserver of a node that joins has no plugin")
	all := []*cluster{c, second, third}
	load = c.startLoad(t, namespace, second, third)
	for _, node := range all[1:] {
		node.takesOver(t)
	}
	t.Log(c.onNode(t, "sh", "-c", deleteAll))
	await.Sleep(t.Context(), 2*time.Second) // for Pods to be created
	for _, node := range all {
		node.killAPIServer(t)
	}
	for _, node := range all {
		t.Log(node.product(t, "kubeadm", "handback"))
		testutil.Check(t, "manifests of "+node.controlPlane(), before[node.controlPlane()], node.controlPlaneManifests(t))
	}
	await.Sleep(t.Context(), 2*time.Second)
	load.unharmed(t)
	c.checkHandedBack(t, before[c.controlPlane()], "handed-back")
}

// TestJoinAfterRotation: kubeadm compares sa.key with the first key of sa.pub when a control-plane node joins. Both
// are of another kind here than the key from before the rotation. Each kube-apiserver accepts the other one's tokens.
func TestJoinAfterRotation(t *testing.T) {
	c := create(t, stock(t, 1))
	c.awaitPods(t, metav1.NamespaceSystem, allReady)
	const pki, kubeconfig = "/etc/kubernetes/pki", "--kubeconfig=/etc/kubernetes/admin.conf"
	const ring = "--service-account-key-ring=" + pki + "/sa-keys/ring.json"
	for _, command := range [][]string{
		{"keys", "init", ring, kubeconfig, "--from-private-key-file=" + pki + "/sa.key", "--service-account-key-file=" + pki + "/sa.pub"},
		{"keys", "export", ring, "--kubeadm"},
		{"kubeadm", "takeover", "--extra-arg=--service-account-private-key-file=", "--extra-arg=" + ring},
		{"keys", "next", ring, kubeconfig, "--algorithm=P-256"},
		{"keys", "export", ring, "--kubeadm"},
		nil, // its kube-apiserver gets to know the next key
		{"keys", "rotate", ring, kubeconfig, "--wait", "--force"},
		{"keys", "export", ring, "--kubeadm"},
		nil, // and signs with it
	} {
		if command == nil {
			c.killAPIServer(t)
			continue
		}
		t.Log(c.product(t, command...))
	}
	second := c.join(t, c.name+"-worker")
	for _, from := range []*cluster{c, second} {
		answer, err := from.client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(t.Context(), "default",
			&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		testutil.Must(t, err)
		token, err := tokens.Inspect(answer.Status.Token)
		testutil.Must(t, err)
		testutil.Check(t, "algorithm of "+from.controlPlane(), "ES256", token.Algorithm)
		for _, to := range []*cluster{c, second} {
			review, err := to.client.AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{
				Spec: authenticationv1.TokenReviewSpec{Token: answer.Status.Token},
			}, metav1.CreateOptions{})
			testutil.Must(t, err)
			if !review.Status.Authenticated {
				t.Errorf("%s refuses a token of %s: %s", to.controlPlane(), from.controlPlane(), review.Status.Error)
			}
		}
	}
}

// takesOver takes one node over from files.
func (c *cluster) takesOver(t *testing.T) {
	t.Helper()
	t.Log(c.product(t, "kubeadm", "takeover"))
	if !strings.Contains(c.readManifest(t, "kube-apiserver"), pluginOff) ||
		!strings.Contains(c.readManifest(t, "sa-controller-manager"), "--webhook-registration=static") {
		t.Errorf("%s is not taken over from files", c.controlPlane())
	}
}

// join makes a worker a further control-plane node, whose kube-apiserver the result's client reaches. kind
// would do so with a load balancer of its own; here the endpoint stays the first node.
func (c *cluster) join(t *testing.T, worker string) *cluster {
	t.Helper()
	lastLine := func(text string) string {
		text = strings.TrimSpace(text)
		return text[strings.LastIndex(text, "\n")+1:]
	}
	key := lastLine(c.onNode(t, "kubeadm", "init", "phase", "upload-certs", "--upload-certs"))
	command := strings.Fields(lastLine(c.onNode(t, "kubeadm", "token", "create", "--print-join-command")))
	ip := strings.TrimSpace(run(t, "docker", "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", worker))
	node := *c
	node.node, node.config = worker, rest.CopyConfig(c.config)
	node.config.Host = "https://" + net.JoinHostPort(ip, "6443")
	var err error
	node.client, err = kubernetes.NewForConfig(node.config)
	testutil.Must(t, err)

	testutil.Must(t, c.client.CoreV1().Nodes().Delete(t.Context(), worker, metav1.DeleteOptions{}))
	node.onNode(t, "kubeadm", "reset", "--force")
	// Some node images have written a network configuration by hand, which has to follow the new range.
	node.onNode(t, "sh", "-c", "rm -f /etc/cni/net.d/10-lab.conflist && systemctl restart containerd kubelet")
	node.onNode(t, append(command, "--control-plane", "--certificate-key", key, "--apiserver-advertise-address", ip,
		"--ignore-preflight-errors=all")...)
	c.onNode(t, "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "wait", "--for=condition=Ready", "node/"+worker, "--timeout=2m")
	c.awaitPods(t, metav1.NamespaceSystem, func(pods []*corev1.Pod) error {
		mirrors := slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return pod.Labels["tier"] != "control-plane" })
		return allReady(mirrors)
	})
	node.installProduct(t)
	return &node
}

const (
	probeInterval = 50 * time.Millisecond
	callTimeout   = 30 * time.Second
)

// load is Pods that are created at a steady rate, and as frequent probes of kube-apiserver.
type load struct {
	pods    *traffic.Traffic
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	probes []probe
}

// probe is one request for /livez or /readyz.
type probe struct {
	begun, ended time.Time
	host, path   string
	ok           bool
}

// startLoad begins at once. Several kube-apiservers are called one after the other.
func (c *cluster) startLoad(t *testing.T, namespace string, others ...*cluster) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{stop: cancel}
	servers, calls := append([]*cluster{c}, others...), atomic.Uint64{}
	l.pods = traffic.Start(t, func(ctx context.Context) (*corev1.Pod, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		server := servers[calls.Add(1)%uint64(len(servers))]
		pod, err := server.client.CoreV1().Pods(namespace).Create(ctx, homeless(), metav1.CreateOptions{})
		if err != nil {
			err = &failedCallError{err, server.config.Host}
		}
		return pod, err
	})
	for _, server := range servers {
		client := testutil.Get(rest.HTTPClientFor(server.config))(t)
		client.Timeout = time.Second
		for _, path := range []string{"/livez", "/readyz"} {
			l.running.Go(func() {
				await.Every(ctx, probeInterval, func(context.Context, int) { l.probe(client, server.config.Host, path) })
			})
		}
	}
	t.Cleanup(func() { l.finish() })
	return l
}

// failedCallError is the error of a call, and which kube-apiserver it was for.
type failedCallError struct {
	error

	host string
}

func (f *failedCallError) Unwrap() error { return f.error }

func (l *load) probe(client *http.Client, host, path string) {
	one := probe{begun: time.Now(), host: host, path: path}
	if response, err := client.Get(host + path); err == nil {
		one.ok = response.StatusCode == http.StatusOK
		_ = response.Body.Close()
	}
	one.ended = time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.probes = append(l.probes, one)
}

// finish ends the load once every call has been answered.
func (l *load) finish() {
	l.stop()
	l.running.Wait()
	l.pods.Finish()
}

// homeless is a Pod for which there is no node, so that a thousand of them cost no
// node anything.
func homeless() *corev1.Pod {
	pod := traffic.Pod()
	pod.Spec.NodeSelector = map[string]string{"no-node": "has-this"}
	return pod
}

// outage is a time in which a kube-apiserver did not answer, or not well.
type outage struct {
	host     string
	from, to time.Time
}

func (o outage) String() string {
	return fmt.Sprintf("%s for %v", o.host, o.to.Sub(o.from).Round(10*time.Millisecond))
}

// oneOutage is how soon after an outage the next one is the same: a kube-apiserver that starts answers
// well and badly by turns.
const oneOutage = 2 * time.Second

// outages are those of all kube-apiservers, in order.
func (l *load) outages(path string) (all []outage) {
	slices.SortFunc(l.probes, func(a, b probe) int { return a.begun.Compare(b.begun) })
	last := map[string]int{}
	for _, p := range l.probes {
		if p.path != path || p.ok {
			continue
		}
		i, known := last[p.host]
		if !known || p.begun.Sub(all[i].to) > oneOutage {
			i, last[p.host] = len(all), len(all)
			all = append(all, outage{host: p.host, from: p.begun, to: p.ended})
		}
		if p.ended.After(all[i].to) {
			all[i].to = p.ended
		}
	}
	return all
}

// unharmed ends the load. No Pod may have been refused, each that was admitted is complete, and no call failed
// except while its kube-apiserver was away.
func (l *load) unharmed(t *testing.T) {
	t.Helper()
	l.finish()
	away := l.outages("/readyz")
	t.Logf("kube-apiserver did not answer: %v; was not ready: %v", l.outages("/livez"), away)
	l.pods.Unharmed(t, func(one traffic.Call) bool {
		failed, ok := errors.AsType[*failedCallError](one.Err)
		return ok && !admissionRefused(one) && slices.ContainsFunc(away, func(o outage) bool {
			return o.host == failed.host && !one.Ended.Before(o.from.Add(-probeInterval)) && !one.Begun.After(o.to.Add(probeInterval))
		})
	})
}

// admissionRefused tells an answer of admission from one of a kube-apiserver that has
// only just begun to serve, or is about to end.
func admissionRefused(one traffic.Call) bool {
	var status apierrors.APIStatus
	if traffic.Unanswered(one) || apierrors.IsUnauthorized(one.Err) || !errors.As(one.Err, &status) {
		return false
	}
	// RBAC is not loaded yet.
	return !(apierrors.IsForbidden(one.Err) && status.Status().Details != nil && status.Status().Details.Name == "")
}

// restartNode turns the control-plane node off and on. The webhook fails closed, and
// nobody is there to answer when the node begins to start its Pods.
func (c *cluster) restartNode(t *testing.T) {
	run(t, "docker", "stop", c.controlPlane())
	run(t, "docker", "start", c.controlPlane())
	begin := time.Now()
	// kube-apiserver is a Pod of that node: there is nothing to watch yet.
	poll(t, "kube-apiserver after the restart", func(ctx context.Context) error {
		return c.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	t.Logf("kube-apiserver is ready %v after the node was turned on", time.Since(begin).Round(100*time.Millisecond))
	namespace := c.namespace(t, "after-restart")
	c.awaitAdmission(t, namespace)
	t.Logf("a Pod is admitted %v after the node was turned on", time.Since(begin).Round(100*time.Millisecond))
	answers := c.answers(t, namespace, c.asker(t, on(c.controlPlane())))
	c.isAccount(t, answers["main"].Username, answers["main"].Groups, namespace)
	c.awaitPods(t, metav1.NamespaceSystem, allReady)
	t.Logf("all is ready %v after the node was turned on", time.Since(begin).Round(100*time.Millisecond))
}

// awaitAdmission returns once a Pod is admitted with all that it needs.
func (c *cluster) awaitAdmission(t *testing.T, namespace string) {
	t.Helper()
	poll(t, "that Pods are admitted", func(ctx context.Context) error {
		pod, err := c.client.CoreV1().Pods(namespace).Create(ctx, homeless(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			err = traffic.Complete(pod)
		}
		return err
	})
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/tokens"

	"sa-controller-manager/test/await"
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

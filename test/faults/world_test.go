// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/balancer"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/test/integration/faultproxy"
	"sa-controller-manager/test/integration/testcluster"
)

const (
	// What a leader has, so that a run sees many of them.
	leaseDuration = 4 * time.Second
	renewDeadline = 3 * time.Second
	retryPeriod   = 500 * time.Millisecond

	// balancerLag is how long a balancer takes to learn of a replica that is away.
	balancerLag = 2500 * time.Millisecond

	// usersPace bounds the rate of each of the users, and podPace is five Pods a second, whether or not those before
	// have been answered.
	users     = 3
	usersPace = 100 * time.Millisecond
	podPace   = 200 * time.Millisecond
	// podTimeout is longer than kube-apiserver waits for a webhook.
	podTimeout = 15 * time.Second
	// unwantedEvery is how often a Pod names an account that there is not.
	unwantedEvery = 7
)

// world is a control plane, the replicas beside it, and all that was seen of them.
type world struct {
	*testcluster.ControlPlane

	cluster  *devcluster.Cluster
	binary   devcluster.Binary
	users    workload.Client
	mode     workload.Mode
	port     int // of the webhook
	random   *rand.Rand
	replicas []*replica
	excuses  []interval
	// working is what users and operators do until stop is called, which ends during.
	working sync.WaitGroup
	during  context.Context
	stop    context.CancelFunc
	all     []*workload.User

	mu   sync.Mutex
	pods []pod
}

// newWorld starts a control plane; one whose tokens are signed by what before starts, unless that is nil.
func newWorld(t *testing.T, mode workload.Mode, before func(*world) error) *world {
	t.Helper()
	w := &world{
		mode: mode, binary: quickPings(testcluster.Binary(t)), random: rand.New(rand.NewPCG(*seed, 0)),
		port: testutil.Get(devcluster.FreePort())(t),
	}
	w.during, w.stop = context.WithCancel(t.Context())
	t.Logf("-seed=%d, --token-secrets=%s", *seed, mode)
	options := devcluster.Options{ExternalSigner: before != nil}
	if before != nil {
		options.BeforeAPIServer = func(cluster *devcluster.Cluster) error {
			w.cluster = cluster
			return before(w)
		}
	}
	w.ControlPlane = testcluster.New(t, options)
	w.cluster, w.users = w.ControlPlane.Cluster, workload.Client{Interface: w.API}
	replicas := []string{at(replicaAddress(0), w.port), at(replicaAddress(1), w.port)}
	balancer := testutil.Get(balancer.Start(at("127.0.0.1", w.port), replicas, 200*time.Millisecond, balancerLag))(t)
	t.Cleanup(func() {
		w.end()
		w.retire(t)
		balancer.Close()
	})
	return w
}

func at(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

func replicaAddress(i int) string { return fmt.Sprintf("127.0.0.%d", i+2) }

// launch starts one more replica. It does not wait. Of equal flags the last one counts.
func (w *world) launch(t *testing.T, flags ...string) {
	t.Helper()
	i := len(w.replicas)
	r := &replica{binary: w.binary, name: fmt.Sprintf("replica %d", i), kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	r.flags = append([]string{
		"--kubeconfig=" + r.kubeconfig, "--token-secrets=" + string(w.mode), "--orphan-token-grace=2s",
		// A loopback address of its own, so that all replicas have the same port, as on several hosts.
		"--webhook-bind-address=" + replicaAddress(i), "--webhook-port=" + strconv.Itoa(w.port),
		// The balancer, which may not be at a loopback address: Linux connects to this machine.
		"--webhook-registration=url", "--webhook-url-host=0.0.0.0", "--webhook-drain-delay=0s",
		"--leader-elect=true",
		"--leader-elect-lease-duration=" + leaseDuration.String(),
		"--leader-elect-renew-deadline=" + renewDeadline.String(),
		"--leader-elect-retry-period=" + retryPeriod.String(),
	}, flags...)
	w.replicas = append(w.replicas, r)
	testutil.Must(t, r.start(w.cluster))
}

// retire ends all replicas, and keeps what they have printed for the search for tokens and keys (promise 6).
func (w *world) retire(t *testing.T) {
	t.Helper()
	for _, r := range w.replicas {
		l := r.now()
		exit, err := l.manager.Stop()
		l.proxy.Close()
		testutil.Expect(t, err == nil && exit.Code == 0, "%s ended with code %d: %v", r.name, exit.Code, err)
		for _, l := range r.lives {
			testcluster.Leaks.Add("log of "+r.name, l.manager.Logs())
			if t.Failed() {
				t.Logf("the last lines of %s:\n%s", r.name, l.manager.LogTail(100))
			}
		}
	}
}

// leader is the replica that holds the Lease.
func (w *world) leader(t *testing.T) (leader *replica) {
	t.Helper()
	testcluster.Poll(t, "await a leader", func() error {
		lease, err := w.API.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), workload.LeaseName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		holder := ptr.Deref(lease.Spec.HolderIdentity, "")
		for _, r := range w.replicas {
			if holder != "" && strings.Contains(r.now().manager.Logs(), holder) {
				leader = r
				return nil
			}
		}
		return errors.New("no replica holds the Lease")
	})
	return leader
}

// calm returns once a replica leads and watches the registration, and all are ready: one who
// begins to lead first proves that kube-apiserver reaches it, and one whose watches were cut
// waits up to half a minute before it tries again.
func (w *world) calm(t *testing.T) {
	t.Helper()
	leader := w.leader(t)
	for _, r := range w.replicas {
		testutil.Must(t, r.now().manager.Ready(testcluster.Context(t)))
	}
	w.awaitRegistered(t)
	for _, which := range []configuration{mutating, validating} {
		testutil.Must(t, leader.now().awaitRequest(testcluster.Context(t), func(r faultproxy.Request) bool {
			return r.Verb == "watch" && r.Resource == string(which) && r.Open
		}))
	}
}

// churn has users work until end is called.
func (w *world) churn(t *testing.T) {
	t.Helper()
	testutil.Must(t, w.users.CreateNamespace(t.Context(), podNamespace))
	w.working.Go(func() { await.Every(w.during, podPace, w.createPod) })
	for i := range users {
		user := workload.NewUser(w.users, fmt.Sprintf("user-%d", i))
		w.all = append(w.all, user)
		random := rand.New(rand.NewPCG(*seed, uint64(i)+1))
		w.working.Go(func() {
			for await.Sleep(w.during, usersPace) {
				// What has begun is finished, so that it is known what there is.
				limit, cancel := context.WithTimeout(t.Context(), 2*workload.RestartTimeout)
				what, err := user.Step(limit, random)
				cancel()
				testutil.Expect(t, err == nil || t.Context().Err() != nil, "a user, %s: %v", what, err)
			}
		})
	}
}

// end ends their work, and returns what there must be because of the users.
func (w *world) end() workload.Model {
	w.stop()
	w.working.Wait()
	model := workload.Model{}
	for _, user := range w.all {
		user.Add(model)
	}
	return model
}

// podNamespace is where Pods are created.
const podNamespace = "pods"

// pod is one, and what became of it.
type pod struct {
	name         string
	begun, ended time.Time
	unwanted     bool // it names an account that there is not
	admitted     *corev1.Pod
	err          error
}

// createPod creates a Pod, and has it go again.
func (w *world) createPod(ctx context.Context, i int) {
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	one := pod{name: fmt.Sprintf("pod-%d", i), begun: time.Now(), unwanted: i%unwantedEvery == 1}
	wanted := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: one.name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image"}}},
	}
	if one.unwanted {
		wanted.Spec.ServiceAccountName = "nobody"
	}
	one.admitted, one.err = w.API.CoreV1().Pods(podNamespace).Create(ctx, wanted, metav1.CreateOptions{})
	one.ended = time.Now()
	w.mu.Lock()
	w.pods = append(w.pods, one)
	w.mu.Unlock()
	if one.err == nil {
		_ = w.API.CoreV1().Pods(podNamespace).Delete(ctx, one.name, *metav1.NewDeleteOptions(0)) // nobody minds it
	}
}

// replica is one of several processes of the product, one after the other.
type replica struct {
	binary           devcluster.Binary
	name, kubeconfig string
	flags            []string
	lives            []*life
}

// life is that of one process.
type life struct {
	manager *devcluster.Manager
	proxy   *faultproxy.Proxy
	resumed []time.Time // when it went on after each pause
}

// now is the newest one.
func (r *replica) now() *life { return r.lives[len(r.lives)-1] }

// start starts a process. It does not wait.
func (r *replica) start(cluster *devcluster.Cluster) error {
	proxy, err := faultproxy.Start(cluster.Config())
	if err != nil {
		return err
	}
	if err := proxy.WriteKubeconfig(r.kubeconfig); err != nil {
		return err
	}
	manager, err := r.binary.StartManager(cluster, r.flags...)
	if err == nil {
		r.lives = append(r.lives, &life{manager: manager, proxy: proxy})
	}
	return err
}

// awaitRequest returns once its process has sent such a request, or has ended.
func (l *life) awaitRequest(ctx context.Context, match faultproxy.Match) error {
	return await.Poll(ctx, func(context.Context) error {
		select {
		case <-l.manager.Done():
			return nil
		default:
		}
		if len(l.proxy.Requests(match)) == 0 {
			return errors.New("it has sent no such request")
		}
		return nil
	})
}

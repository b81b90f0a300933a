// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/balancer"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/test/integration/faultproxy"
	"sa-controller-manager/test/tokenrecord"
)

const (
	// What a leader has, so that a run sees many of them.
	leaseDuration = 4 * time.Second
	renewDeadline = 3 * time.Second
	retryPeriod   = 500 * time.Millisecond

	// settleTimeout is how long the product may take until every promise holds. It is
	// longer than the longest back-off of a key.
	settleTimeout = 75 * time.Second
)

// World is a control plane, the replicas beside it, and all that was seen of them.
type World struct {
	// Busy reports that other programs may use the machine, so that times that are too long
	// tell nothing. Logs is a directory for what each process has printed, "" for none. Both are set before anything is done.
	Busy bool
	Logs string

	cluster  *devcluster.Cluster
	client   workload.Client
	port     int // of the webhook
	mode     workload.Mode
	balancer *balancer.Balancer
	excuses  []*checker.Interval
	tokens   *tokenrecord.Record
	log      func(format string, args ...any)
	replicas []*Replica
	injected map[string]int
	found    []checker.Violation
}

// Start starts the control plane. log gets a line for each fault.
func Start(ctx context.Context, log func(format string, args ...any)) (*World, error) {
	return start(ctx, log, nil)
}

// start starts one whose kube-apiserver has its tokens signed by what before starts, unless that is nil.
func start(ctx context.Context, log func(format string, args ...any), before func(*World) error) (*World, error) {
	port, err := devcluster.FreePort()
	if err != nil {
		return nil, err
	}
	w := &World{port: port, mode: workload.Auto, log: log, injected: map[string]int{}}
	options := devcluster.Options{ExternalSigner: before != nil}
	if before != nil {
		options.BeforeAPIServer = func(cluster *devcluster.Cluster) error {
			w.cluster = cluster
			return before(w)
		}
	}
	if w.cluster, err = devcluster.Start(ctx, options); err != nil {
		return nil, err
	}
	if err := w.connect(); err != nil {
		return nil, errors.Join(err, w.cluster.Stop())
	}
	return w, nil
}

// connect makes all that looks at the control plane.
func (w *World) connect() error {
	config := w.cluster.Config()
	config.WarningHandler = rest.NoWarnings{} // legacy tokens are old-fashioned on purpose
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make an admin client: %w", err)
	}
	w.client = workload.Client{Interface: client}
	replicas := []string{at(replicaAddress(0), w.port), at(replicaAddress(1), w.port)}
	w.balancer, err = balancer.Start(at("127.0.0.1", w.port), replicas, 200*time.Millisecond, checker.BalancerLag)
	if err != nil {
		return err
	}
	w.tokens = tokenrecord.Start(client)
	return nil
}

// Stop ends everything. A data race that a process has found is an error.
func (w *World) Stop() error {
	err := w.retire()
	w.tokens.End()
	w.balancer.Close()
	return errors.Join(err, w.cluster.Stop())
}

func at(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

func replicaAddress(i int) string { return fmt.Sprintf("127.0.0.%d", i+2) }

// deploy starts two replicas of the binary, and returns once kube-apiserver asks them about Pods.
func (w *World) deploy(ctx context.Context, binary devcluster.Binary) error {
	for range 2 {
		if err := w.launch(binary); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
	defer cancel()
	return w.awaitReady(ctx)
}

// launch starts one more replica. It does not wait. Of equal flags the last one counts.
func (w *World) launch(binary devcluster.Binary, flags ...string) error {
	dir, err := os.MkdirTemp(w.cluster.Dir(), "replica-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	i := len(w.replicas)
	r := &Replica{world: w, name: fmt.Sprintf("replica %d", i), dir: dir, binary: binary}
	r.flags = append([]string{
		"--token-secrets=" + string(w.mode), "--orphan-token-grace=2s",
		// A loopback address of its own, so that all replicas have the same port, as on several hosts.
		"--webhook-bind-address=" + replicaAddress(i), "--webhook-port=" + strconv.Itoa(w.port),
		// The balancer, which may not be at a loopback address: Linux connects to this machine.
		"--webhook-registration=url", "--webhook-url-host=0.0.0.0", "--webhook-drain-delay=0s",
		"--leader-elect=true",
		"--leader-elect-lease-duration=" + leaseDuration.String(),
		"--leader-elect-renew-deadline=" + renewDeadline.String(),
		"--leader-elect-retry-period=" + retryPeriod.String(),
		"-v=2",
	}, flags...)
	w.replicas = append(w.replicas, r)
	return r.start()
}

// awaitReady returns once all replicas are ready and registered.
func (w *World) awaitReady(ctx context.Context) error {
	for _, r := range w.replicas {
		if err := r.now().manager.Ready(ctx); err != nil {
			return fmt.Errorf("await %s: %w; its last words:\n%s", r.name, err, r.now().manager.LogTail(15))
		}
	}
	_, err := w.awaitRegistered(ctx)
	return err
}

// retire ends all replicas and writes their logs.
func (w *World) retire() error {
	var errs []error
	for _, r := range w.replicas {
		errs = append(errs, r.stop())
	}
	for _, t := range w.terms() {
		if w.Logs != "" {
			path := filepath.Join(w.Logs, fmt.Sprintf("pid-%d.log", t.manager.PID()))
			errs = append(errs, os.WriteFile(path, []byte(t.manager.Logs()), 0o600))
		}
	}
	w.replicas = nil
	return errors.Join(errs...)
}

// terms are the lives of all processes of the replicas.
func (w *World) terms() (terms []*term) {
	for _, r := range w.replicas {
		terms = append(terms, r.terms...)
	}
	return terms
}

// report keeps a violation that a fault itself has found.
func (w *World) report(v checker.Violation) { w.found = append(w.found, v) }

// leader is the replica that holds the Lease.
func (w *World) leader(ctx context.Context) (*Replica, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var leader *Replica
	err := await.Poll(ctx, func(ctx context.Context) error {
		lease, err := w.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, workload.LeaseName, metav1.GetOptions{})
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
	if err != nil {
		return nil, fmt.Errorf("await a leader: %w", err)
	}
	return leader, nil
}

// Replica is one of several processes of the product, one after the other.
type Replica struct {
	world     *World
	name, dir string
	binary    devcluster.Binary
	flags     []string
	terms     []*term
}

// term is the life of one process.
type term struct {
	manager *devcluster.Manager
	proxy   *faultproxy.Proxy
	resumed []time.Time // when it went on after each pause
}

// start starts a process. It does not wait.
func (r *Replica) start() error {
	proxy, err := faultproxy.Start(r.world.cluster.Config())
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(r.dir, "kubeconfig")
	if err := proxy.WriteKubeconfig(kubeconfig); err != nil {
		proxy.Close()
		return err
	}
	manager, err := r.binary.StartManager(r.world.cluster, append([]string{"--kubeconfig=" + kubeconfig}, r.flags...)...)
	if err != nil {
		proxy.Close()
		return fmt.Errorf("start %s: %w", r.name, err)
	}
	r.terms = append(r.terms, &term{manager: manager, proxy: proxy})
	return nil
}

// ready starts a process and returns once it is ready.
func (r *Replica) ready(ctx context.Context) error {
	if err := r.start(); err != nil {
		return err
	}
	if err := r.now().manager.Ready(ctx); err != nil {
		return fmt.Errorf("await %s: %w", r.name, err)
	}
	return nil
}

// now is the newest term.
func (r *Replica) now() *term { return r.terms[len(r.terms)-1] }

// kill ends the process as a power cut would.
func (r *Replica) kill() error {
	t := r.now()
	_, err := t.manager.Kill()
	t.proxy.Close()
	return err
}

// stop ends the process in order, if there is one.
func (r *Replica) stop() error {
	if len(r.terms) == 0 {
		return nil
	}
	t := r.now()
	exit, err := t.manager.Stop()
	t.proxy.Close()
	if err == nil && exit.Code > 0 {
		err = fmt.Errorf("%s ended with code %d; its last words:\n%s", r.name, exit.Code, t.manager.LogTail(10))
	}
	return err
}

func (t *term) resume() error {
	t.resumed = append(t.resumed, time.Now())
	return t.manager.Resume()
}

// awaitRequest returns once its process has sent such a request, or has ended.
func (t *term) awaitRequest(ctx context.Context, match faultproxy.Match) error {
	return await.Poll(ctx, func(context.Context) error {
		select {
		case <-t.manager.Done():
			return nil
		default:
		}
		if len(t.proxy.Requests(match)) == 0 {
			return errors.New("it has sent no such request")
		}
		return nil
	})
}

func killLeader(ctx context.Context, w *World) (func(context.Context) error, error) {
	leader, err := w.leader(ctx)
	if err != nil {
		return nil, err
	}
	if err := leader.kill(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
		defer cancel()
		return leader.ready(ctx)
	}, nil
}

func pauseLeader(ctx context.Context, w *World) (func(context.Context) error, error) {
	leader, err := w.leader(ctx)
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { return leader.now().resume() }, leader.now().manager.Pause()
}

func killAPIServer(_ context.Context, w *World) (func(context.Context) error, error) {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
		defer cancel()
		return w.cluster.StartAPIServer(ctx)
	}, w.cluster.KillAPIServer()
}

func killEtcd(_ context.Context, w *World) (func(context.Context) error, error) {
	return func(ctx context.Context) error {
		if err := w.cluster.StartEtcd(); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
		defer cancel()
		return w.cluster.AwaitAPIServer(ctx)
	}, w.cluster.KillEtcd()
}

// quickPings has the binary find out within 5 s, in place of 45, that nobody answers on a
// connection (k8s.io/apimachinery pkg/util/net, http.go).
func quickPings(binary devcluster.Binary) devcluster.Binary {
	binary.Env = append(binary.Env, "HTTP2_READ_IDLE_TIMEOUT_SECONDS=2", "HTTP2_PING_TIMEOUT_SECONDS=3")
	return binary
}

// pingTimeout is how long that may take on a machine that is busy, and while other faults keep
// a process from connecting again.
const pingTimeout = 30 * time.Second

// silenceConnections has nothing pass any more through the connections that are open, and
// no peer close them. Only an unanswered ping shows it, and a process that has noticed opens
// another connection.
func silenceConnections(_ context.Context, w *World) (func(context.Context) error, error) {
	struck := map[*Replica]*term{}
	for _, r := range w.replicas {
		struck[r] = r.now()
		struck[r].proxy.Silence()
	}
	begun := time.Now()
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, pingTimeout)
		defer cancel()
		for r, t := range struck {
			err := t.awaitRequest(ctx, func(r faultproxy.Request) bool { return r.Verb == "watch" && r.Began.After(begun) })
			if err != nil {
				w.report(checker.Violated(1, "%s keeps using a silent connection: %v", r.name, err))
			}
		}
		for _, t := range struck {
			t.proxy.EndSilence()
		}
		return nil
	}, nil
}

// repairLimit is how long a configuration may stay changed on a healthy watch: twice the 2 s that are promised, because a
// race-enabled build is slower.
const repairLimit = 4 * time.Second

// spoil does something to the registration.
type spoil func(ctx context.Context, w *World) error

// tampers is a fault that ends when the registration is as it was.
func tampers(do spoil) Inject {
	return func(ctx context.Context, w *World) (func(context.Context) error, error) {
		before, err := w.awaitRegistered(ctx)
		if err != nil {
			return nil, err
		}
		begun := time.Now()
		if err := do(ctx, w); err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			limit := repairLimit
			if w.Busy {
				limit = settleTimeout
			}
			ctx, cancel := context.WithDeadline(ctx, begun.Add(limit))
			defer cancel()
			err := await.Poll(ctx, func(ctx context.Context) error {
				now, err := w.registration(ctx)
				if differ := cmp.Diff(before, now); err == nil && differ != "" {
					return errors.New(differ)
				}
				return err
			})
			if err != nil {
				w.report(checker.Violated(5, "the registration is not repaired within %v: %v", limit, err))
			}
			return nil
		}, nil
	}
}

// configuration is one of the two.
type configuration string

const (
	mutating   configuration = "mutatingwebhookconfigurations"
	validating configuration = "validatingwebhookconfigurations"
)

// edit puts a value at a path of a configuration.
func edit(which configuration, path string, value any) spoil {
	return func(ctx context.Context, w *World) error {
		body, err := json.Marshal([]map[string]any{{"op": "add", "path": path, "value": value}})
		if err != nil {
			return err
		}
		return w.client.AdmissionregistrationV1().RESTClient().Patch(types.JSONPatchType).Resource(string(which)).
			Name(workload.ConfigurationName).Body(body).Do(ctx).Error()
	}
}

// editBundle has kube-apiserver trust another CA.
func editBundle(which configuration) spoil {
	return func(ctx context.Context, w *World) error {
		stranger, err := os.ReadFile(w.cluster.ClientCAFile())
		if err != nil {
			return err
		}
		return edit(which, "/webhooks/0/clientConfig/caBundle", stranger)(ctx, w)
	}
}

// drop deletes a configuration.
func drop(which configuration) spoil {
	return func(ctx context.Context, w *World) error {
		return w.client.AdmissionregistrationV1().RESTClient().Delete().Resource(string(which)).
			Name(workload.ConfigurationName).Do(ctx).Error()
	}
}

// registered is what kube-apiserver knows of the webhook.
type registered struct {
	Mutating   []admissionregistrationv1.MutatingWebhook
	Validating []admissionregistrationv1.ValidatingWebhook
}

// registration reads both configurations. One that is not there has no webhooks.
func (w *World) registration(ctx context.Context) (registered, error) {
	api := w.client.AdmissionregistrationV1()
	mutating, err1 := api.MutatingWebhookConfigurations().Get(ctx, workload.ConfigurationName, metav1.GetOptions{})
	validating, err2 := api.ValidatingWebhookConfigurations().Get(ctx, workload.ConfigurationName, metav1.GetOptions{})
	err := errors.Join(workload.Ignore(err1, apierrors.IsNotFound), workload.Ignore(err2, apierrors.IsNotFound))
	if err != nil {
		return registered{}, fmt.Errorf("get the webhook configurations: %w", err)
	}
	return registered{mutating.Webhooks, validating.Webhooks}, nil
}

// awaitRegistered returns both configurations once each has its one webhook. While kube-apiserver is
// asked to prove that it reaches the webhook, the mutating one has a second, and the webhook of each
// leaves out the probe.
func (w *World) awaitRegistered(ctx context.Context) (state registered, err error) {
	ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
	defer cancel()
	err = await.Poll(ctx, func(ctx context.Context) error {
		state, err = w.registration(ctx)
		switch {
		case err != nil:
			return err
		case len(state.Mutating) != 1 || len(state.Validating) != 1:
			return fmt.Errorf("the configurations have %d and %d webhooks, want one each", len(state.Mutating), len(state.Validating))
		case slices.ContainsFunc(state.Validating[0].MatchConditions, leavesOutProbe):
			return errors.New("the validating webhook leaves out the probe")
		}
		return nil
	})
	if err != nil {
		return state, fmt.Errorf("await the registration: %w", err)
	}
	return state, nil
}

func leavesOutProbe(c admissionregistrationv1.MatchCondition) bool {
	return c.Name == "except-the-probe"
}

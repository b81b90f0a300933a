// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

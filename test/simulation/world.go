// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"sa-controller-manager/cmd/sa-controller-manager/app"
	"sa-controller-manager/cmd/sa-controller-manager/app/options/secureport"
	"sa-controller-manager/controllers/keyring/reissue"
	"sa-controller-manager/controllers/tokencontroller"
	"sa-controller-manager/signing"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"

	"sa-controller-manager/test/simulation/model"
)

const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 4 * time.Second

	// settles is how long the product has after the last operation until all is as promised.
	settles = 2 * time.Minute
	// lasts is how long it has to stay so, without a write.
	lasts = 4 * time.Minute

	issuer = "https://kubernetes.default.svc"
)

// world is an API server, the processes beside it, and users.
type world struct {
	plan    *plan
	mode    workload.Mode
	network *network
	server  *model.Server
	model   workload.Model
	logger  logr.Logger
	signed  func(token string) error // with a key of the product

	ring      atomic.Pointer[signing.Ring] // that all replicas have, or will have soon
	rotated   bool
	ca        []byte // that all replicas have, or will have soon
	caChanged time.Time
	caKnown   bool // the state was written
	commits   int

	running         sync.WaitGroup
	processes, past []*process

	held     map[string]holding // tokens that were ever in a Secret
	revoked  map[string]bool    // IDs of keys
	unproven bool               // kube-apiserver has never accepted the key

	writes   writes
	price    price
	policies []*policy
	undoes   func(made model.Object) // what replicas create

	mu    sync.Mutex
	found []checker.Violation
}

// process is one life of a replica.
type process struct {
	client     *client
	stop       context.CancelFunc
	down       bool
	keys       *keysInMemory
	manager    *app.Manager
	controller *tokencontroller.Controller
	visited    atomic.Int64 // by its lister of token Secrets
}

// remembering calls a function once for each token: of a world's processor time, signatures take a tenth.
func remembering(verify func(string) error) func(string) error {
	known := map[string]error{}
	return func(token string) error {
		err, ok := known[token]
		if !ok {
			err = verify(token)
			known[token] = err
		}
		return err
	}
}

// registry forgets what is registered. One of component-base never ends, and keeps the world that it is of.
type registry struct{ metrics.KubeRegistry }

func (registry) MustRegister(...metrics.Registerable)    {}
func (registry) RawMustRegister(...prometheus.Collector) {}

func newWorld(p *plan, logger logr.Logger) *world {
	server := model.New(nil, issuer)
	w := &world{
		plan: p, mode: workload.ModeOf(p.seed), server: server, network: newNetwork(server, p.seed), logger: logger,
		signed: remembering(ownKeys.Verify), model: workload.Model{}, held: map[string]holding{}, revoked: map[string]bool{}, ca: rootCA(),
		writes: newWrites(), price: newPrice()}
	server.Verify = w.verify
	w.ring.Store(signing.NewRing(key.As(signing.Active), nextKey.As(signing.Next)))
	w.processes = make([]*process, p.replicas)
	if p.upstream {
		w.mode = workload.Manual // which it has had since v1.24
	}
	server.Committed, server.Admit, server.Cached, server.NoWatchList = w.committed, w.admit, w.network.cached, p.oldLists
	w.network.answered, w.network.told = w.answered, w.told
	if p.cleans {
		w.makeOld()
		server.Change("configmaps", "kube-system", "kube-apiserver-legacy-service-account-token-tracking",
			func(o model.Object) { o.(*corev1.ConfigMap).Data["since"] = "1999-01-01" })
	}
	w.network.revisions = nil // every watch cache has what was there before
	return w
}

// run has all of the plan happen, and returns what was not as promised.
func (w *world) run() []checker.Violation {
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { w.network.run(ctx) })
	for i := range w.plan.replicas {
		w.network.later(0, "start", func() { w.start(i) })
	}
	w.act()
	w.network.settle()
	time.Sleep(settles)
	quiet := false
	w.network.now(func() {
		w.judge("two minutes after the last operation")
		quiet = len(w.found) == 0
	})
	time.Sleep(lasts)
	w.network.now(func() {
		if quiet {
			w.judge("six minutes after the last operation")
		}
		if quiet {
			w.judgeQuiet(time.Now().Add(-lasts))
			w.judgeLeftovers()
			w.judgeUnneeded()
		}
		w.judgeEvents()
	})
	for _, p := range w.processes {
		p.stop()
	}
	w.running.Wait()
	stop()
	serving.Wait()
	if !w.plan.upstream { // which ends with its Lease
		w.judgeWrites()
	}
	return w.found
}

// start begins a life of a replica.
func (w *world) start(i int) {
	if p := w.processes[i]; p != nil && !p.down {
		return // two faults have ended the same one
	}
	life := 1
	for _, p := range w.past {
		if p.client.replica == i {
			life++
		}
	}
	c := &client{network: w.network, name: fmt.Sprintf("replica-%d.%d", i, life), replica: i}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), w.logger.WithName(c.name)))
	w.processes[i] = &process{client: c, stop: cancel, keys: &keysInMemory{changed: make(chan *signing.Ring, 9)}}
	w.processes[i].keys.ring.Store(w.ring.Load())
	p, settings := w.processes[i], w.config(c, "sa-controller-manager")
	w.past = append(w.past, w.processes[i])
	w.running.Go(func() {
		err := w.work(ctx, p, settings)
		if err == nil && ctx.Err() == nil {
			w.network.later(time.Since(w.network.began)+5*time.Second, "restart", func() { w.processes[i].down = true; w.start(i) })
		}
		if err != nil {
			w.violated(0, "%s has failed: %v", c.name, err)
		}
	})
}

// work is a process: the product, or upstream's controllers. The former returns when ctx has ended.
func (w *world) work(ctx context.Context, p *process, config *rest.Config) error {
	c := p.client
	if w.plan.upstream {
		return runUpstream(ctx, config, c.name)
	}
	c.ahead = w.plan.ahead == c.replica
	flags, _, err := secureport.Parse([]string{
		"--webhook-port=0", "--secure-port=0", "--token-secrets=" + string(w.mode), "--orphan-token-grace=2s",
		"--concurrent-serviceaccount-token-syncs=" + w.plan.workers, "--root-ca-overlap=" + overlap.String(),
		"--legacy-service-account-token-clean-up-period=" + cleanerPeriod.String(), "--leader-elect-lease-duration=" +
			leaseDuration.String(),
		"--leader-elect-renew-deadline=" + renewDeadline.String(), "--leader-elect-retry-period=" + retryPeriod.String()})
	if err != nil {
		return err
	}
	extras := app.Extras{
		OpenKeys:     func(context.Context, app.Host) (signing.Store, error) { return p.keys, nil },
		Replacements: reissue.Replacements}
	if w.plan.rotates {
		extras.Parts = w.reissuing(p)
	}
	if p.manager, err = app.New(ctx, flags, config, registry{}, extras); err != nil {
		return err
	}
	w.prepare(p)
	return p.manager.Run(ctx)
}

// config is that of a client. A transport that trusts the CA is built, and never used.
func (w *world) config(c *client, agent string) *rest.Config {
	return &rest.Config{
		Host: "https://apiserver", UserAgent: agent, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: w.ca},
		ContentConfig: rest.ContentConfig{
			ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
		},
		WrapTransport: func(http.RoundTripper) http.RoundTripper { return c }}
}

// crash ends a process between any two of its requests: no further one comes, and no answer reaches it. One
// that is under way may still be served.
func (w *world) crash(i int) {
	p := w.processes[i]
	w.network.mu.Lock()
	p.client.dead = true
	w.network.mu.Unlock()
	w.network.cutAll(p.client.name, "")
	w.halt(i)
}

// halt asks a process to end.
func (w *world) halt(i int) {
	w.processes[i].down = true
	w.processes[i].stop()
}

// second has kube-controller-manager's controllers act beside the product's for a while.
func (w *world) second(lasts time.Duration) {
	c := &client{network: w.network, name: "kube-controller-manager", replica: -1}
	settings := w.config(c, "kube-controller-manager")
	ctx, stop := context.WithTimeout(klog.NewContext(context.Background(), logr.Discard()), lasts)
	w.running.Go(func() {
		defer stop()
		if err := runUpstream(ctx, settings, c.name); err != nil {
			w.violated(0, "kube-controller-manager: %v", err)
		}
	})
}

func (w *world) user(i int) *workload.User {
	c := &client{network: w.network, name: fmt.Sprintf("user-%d", i), user: true}
	made, err := kubernetes.NewForConfig(w.config(c, "kubectl"))
	if err != nil {
		panic(err)
	}
	return workload.NewUser(workload.Client{Interface: made}, fmt.Sprintf("u%d", i))
}

// settle heals all.
func (n *network) settle() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calm, n.faults = true, nil
}

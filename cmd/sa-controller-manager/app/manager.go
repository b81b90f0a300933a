// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/options/secureport"
	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/serviceaccount"
	"sa-controller-manager/internal/events"
	election "sa-controller-manager/internal/leaderelection"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/internal/serving"
	"sa-controller-manager/internal/watchhealth"
)

// Manager has all parts of the process.
type Manager struct {
	Host

	extras   Extras
	identity clientCertificate
	// The account of this process, empty outside of Pods.
	ownNamespace, ownAccount string
	watches                  *watchhealth.Tracker
	informers                *informers.Informers
	watchdog                 *leaderelection.HealthzAdaptor
	rootCA                   *rootca.Source

	// Parts that others use, in the order of the table; nil if the flags disable them.
	rootCAMetrics *rootca.Metrics
	bundles       *rootca.BundleController
	accounts      *serviceaccount.Controller
	webhook       *webhook
	securePort    *serving.Server

	// rows are the table, and parts those that the flags enable.
	rows, parts []Part
}

// New builds the parts of Run for an API server, keys and a registry that the caller has, such as those
// of a test. Several managers may be in one process. The flags that name a kubeconfig have no effect, and
// extras open the keys; a flag that names another file, a port or a socket has it opened.
func New(ctx context.Context, o *options.Options, config *rest.Config, registry metrics.KubeRegistry, extras Extras) (*Manager, error) {
	m, err := newManager(ctx, o, registry, extras)
	if err != nil {
		return nil, err
	}
	if err := m.use(rest.CopyConfig(config)); err != nil {
		return nil, err
	}
	return m, m.wire(config)
}

// Run runs the parts until ctx ends, and returns when all have stopped.
func (m *Manager) Run(ctx context.Context) error { return m.whileEarly(ctx, m.run) }

// newManager builds the parts that need only the files with keys, such as the external signer:
// kube-apiserver may wait for it, and everything else waits for kube-apiserver.
func newManager(ctx context.Context, o *options.Options, registry metrics.KubeRegistry, extras Extras) (*Manager, error) {
	m := &Manager{
		Host:     Host{Options: o, Logger: klog.FromContext(ctx), Registry: registry, Process: process(&o.LeaderElection)},
		extras:   extras,
		watches:  watchhealth.New(clock.RealClock{}, watchhealth.Limit),
		watchdog: election.NewWatchdog(),
	}
	var err error
	if m.Controllers, err = options.ParseControllers(o.Generic.Controllers); err != nil {
		return nil, fmt.Errorf("--controllers %w", err)
	}
	if elsewhere := m.Controllers.NotRun; len(elsewhere) > 0 {
		m.Logger.Info("Ignoring controllers in --controllers that this program does not have", "controllers", elsewhere)
	}
	if err := m.openKeys(ctx); err != nil {
		return nil, err
	}
	warnLooseKeys(m.Logger, o)
	m.rows = m.table()
	return m, m.build(func(p Phase) bool { return p == Early })
}

// wire builds all other parts.
func (m *Manager) wire(config *rest.Config) error {
	m.informers = informers.New(m.Client, resync(&m.Options.Generic))
	m.informers.OnlyIdentity = m.Options.OnlySigns
	m.Recorder = events.NewRecorder(m.Client, options.ProgramName)
	m.Loops = reconcile.NewMetrics(m.Registry.MustRegister)
	bundle, err := m.files.openRootCA(&m.Options.Keys, config)
	if err != nil {
		return err
	}
	m.rootCA = rootca.NewSource(bundle, m.Loops)
	return m.build(func(p Phase) bool { return p != Early })
}

// buildSecurePort opens the port, whose /readyz runs the checks of all parts that are built.
func (m *Manager) buildSecurePort(p *Part) (err error) {
	live := []serving.Check{{Name: "leader-election", Probe: func() (string, error) { return "", m.watchdog.Check(nil) }}}
	var ready []serving.Check
	for _, r := range m.parts {
		if probe := r.probe(); probe != nil {
			ready = append(ready, serving.Check{Name: r.Name, Probe: probe})
		}
	}
	if m.securePort, err = m.openSecurePort(secureport.Of(m.Options), live, append(ready, live...)); err == nil {
		p.Run = m.securePort.Run
	}
	return err
}

func (m *Manager) openSecurePort(port *secureport.Options, live, ready []serving.Check) (*serving.Server, error) {
	o := m.Options
	return serving.New(serving.Config{
		Name:                options.ProgramName,
		Version:             version.Get().GitVersion,
		Serving:             *port.Serving,
		Authentication:      *port.Authentication,
		Authorization:       *port.Authorization,
		Profiling:           o.Debugging.Profiling,
		ContentionProfiling: o.Debugging.ContentionProfiling,
		Flags:               o.Flags(),
		Options:             o,
		Live:                live,
		Ready:               ready,
	})
}

// synced returns an error that names the caches which are not filled yet, and why.
func (m *Manager) synced(caches *informers.Informers) error {
	missing := caches.Missing()
	for i, name := range missing {
		if why := m.watches.Failure(name); why != "" {
			missing[i] += ": " + why
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("not listed yet: %s", strings.Join(missing, "; "))
	}
	return nil
}

// newRootCA passes the content of a changed root CA file on.
func (m *Manager) newRootCA(bundle *rootca.Bundle) {
	if m.bundles != nil {
		m.bundles.Set(bundle)
	}
}

// resync returns a random period between the minimum and twice the minimum, as KCM does
// (cmd/kube-controller-manager/app, ResyncPeriod), so that processes do not all resync at the same time.
func resync(o *options.Generic) time.Duration {
	return time.Duration(float64(o.MinResyncPeriod) * (1 + rand.Float64()))
}

// process returns the object of Events about this process: the Lease that its replicas share or,
// without one, the namespace kube-system.
func process(o *options.LeaderElection) *corev1.ObjectReference {
	if !o.LeaderElect {
		return &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: metav1.NamespaceSystem}
	}
	return &corev1.ObjectReference{
		APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: o.ResourceNamespace, Name: o.ResourceName,
	}
}

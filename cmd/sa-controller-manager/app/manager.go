// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	podadmission "sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/serviceaccount"
	"sa-controller-manager/controllers/tokenreissue"
	"sa-controller-manager/internal/events"
	election "sa-controller-manager/internal/leaderelection"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/internal/serving"
	"sa-controller-manager/internal/serving/settings"
	"sa-controller-manager/internal/watchhealth"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/external"
)

// manager has all parts of the process.
type manager struct {
	options   *options.Options
	enabled   options.ControllerSet
	logger    logr.Logger
	clients   clients
	identity  clientCertificate
	informers *informers.Informers
	watches   *watchhealth.Tracker
	recorder  *events.Recorder
	process   *corev1.ObjectReference
	loops     *reconcile.Metrics
	watchdog  *leaderelection.HealthzAdaptor
	files     *files
	rootCA    *rootca.Source

	// Parts that others use, in the order of runnables; nil if the flags disable them.
	ring           *signing.Keyring
	activator      *keyprobe.Activator
	consistency    *tokenreissue.RingConsistency
	reissueMetrics *tokenreissue.Metrics
	reissuer       *tokenreissue.Controller
	rootCAMetrics  *rootca.Metrics
	bundles        *rootca.BundleController
	accounts       *serviceaccount.Controller
	podConfig      *podadmission.Config
	webhook        *webhook
	signer         *external.Server
	// guard is maySign once it works; the socket is served before.
	guard atomic.Pointer[func() error]

	runnables []runnable
	// onRing is called after a key file has changed.
	onRing []func(context.Context)
}

// newManager opens the socket of the external signer, which needs only the files with keys:
// kube-apiserver may wait for the socket, and everything else waits for kube-apiserver.
func newManager(ctx context.Context, o *options.Options) (*manager, error) {
	m := &manager{
		options:  o,
		logger:   klog.FromContext(ctx),
		watches:  watchhealth.New(clock.RealClock{}, watchhealth.Limit),
		process:  process(&o.LeaderElection),
		watchdog: election.NewWatchdog(),
	}
	if err := m.selectControllers(); err != nil {
		return nil, err
	}
	if err := m.openKeys(); err != nil {
		return nil, err
	}
	if err := m.checkLegacySigner(ctx); err != nil {
		return nil, err
	}
	warnLooseKeys(m.logger, o)
	var err error
	m.signer, err = listenAsSigner(o, m.ring, m.signerMaySign)
	return m, err
}

// wire builds all other parts.
func (m *manager) wire(config *rest.Config) error {
	m.informers = informers.New(m.clients.main, resync(&m.options.Generic))
	m.recorder = events.NewRecorder(m.clients.main, options.ProgramName)
	m.loops = reconcile.NewMetrics(legacyregistry.MustRegister)
	bundle, err := m.files.openRootCA(&m.options.Keys, config)
	if err != nil {
		return err
	}
	m.rootCA = rootca.NewSource(bundle, m.loops)
	if err := m.files.openAccountTemplate(m.options.Tokens.AccountTemplate); err != nil {
		return err
	}
	m.files.recorder, m.files.process = m.recorder, m.process
	m.files.metrics = newFileMetrics(legacyregistry.MustRegister)
	for _, gauge := range m.files.refusedGauges() {
		legacyregistry.RawMustRegister(gauge)
	}
	if err := m.build(); err != nil {
		return err
	}
	return m.buildSecurePort()
}

func (m *manager) selectControllers() error {
	var err error
	if m.enabled, err = options.ParseControllers(m.options.Generic.Controllers); err != nil {
		return fmt.Errorf("--controllers %w", err)
	}
	if elsewhere := m.enabled.NotRun(); len(elsewhere) > 0 {
		m.logger.Info("Ignoring controllers in --controllers that this program does not have", "controllers", elsewhere)
	}
	return nil
}

// buildSecurePort comes last: /readyz runs the checks of all other parts.
func (m *manager) buildSecurePort() error {
	live := []serving.Check{{Name: "leader-election", Probe: func() (string, error) { return "", m.watchdog.Check(nil) }}}
	var ready []serving.Check
	for _, r := range m.runnables {
		if r.check != nil {
			ready = append(ready, serving.Check{Name: r.name, Probe: r.check})
		}
	}
	server, err := m.openSecurePort(m.options.Authentication.Authentication, m.options.Authorization.Authorization, live, append(ready, live...))
	if err != nil {
		return err
	}
	m.runnables = append(m.runnables,
		runnable{name: "secure-port", phase: atOnce, run: server.Run},
		runnable{name: "secure-port-lookup", phase: connected, run: server.Lookup})
	return nil
}

func (m *manager) openSecurePort(authn settings.Authentication, authz settings.Authorization, live, ready []serving.Check) (*serving.Server, error) {
	o := m.options
	return serving.New(serving.Config{
		Name:           options.ProgramName,
		Version:        version.Get().GitVersion,
		Port:           o.SecureServing.Port,
		Authentication: authn,
		Authorization:  authz,
		Debugging:      o.Debugging.Debugging,
		Flags:          o.Flags(),
		Options:        o,
		Live:           live,
		Ready:          ready,
	})
}

func (m *manager) cachesReady() error {
	if missing := m.informers.Missing(); len(missing) > 0 {
		return fmt.Errorf("not listed yet: %s", strings.Join(missing, ", "))
	}
	return nil
}

// newRootCA passes the content of a changed root CA file on.
func (m *manager) newRootCA(bundle *rootca.Bundle) {
	if m.bundles != nil {
		m.bundles.Set(bundle)
	}
}

// resync returns a random period between the minimum and twice the minimum, as KCM does
// (cmd/kube-controller-manager/app, ResyncPeriod), so that processes do not resync all at once.
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

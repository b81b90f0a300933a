// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/internal/testutil"
)

var errDown = apierrors.NewInternalError(errors.New("down"))

// cluster is an API server with the state in it, whose verbs fail on request. It outlives processes.
type cluster struct {
	*controllertest.World
	authorities
	t     *testing.T
	began time.Time
	clock clock.WithTicker // of processes, the real one if nil

	mu       sync.Mutex
	failures map[string]error // by verb
}

func newCluster(t *testing.T, names string) *cluster {
	c := &cluster{t: t, authorities: newAuthorities(t, names), World: controllertest.NewWorld(time.Time{}, emptyState()),
		failures: map[string]error{}, began: time.Now()}
	c.Client.PrependReactor("*", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		err := c.failures[action.GetVerb()]
		return err != nil, nil, err
	})
	return c
}

func (c *cluster) fail(err error, verbs ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, verb := range verbs {
		c.failures[verb] = err
	}
}

// stored is the state as it is in the API, with ends counted from the beginning of the test.
func (c *cluster) stored() string {
	c.t.Helper()
	synctest.Wait()
	object, err := c.Client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("secrets"), StateNamespace, StateName)
	if err != nil {
		return "none"
	}
	if len(object.(*corev1.Secret).Data) == 0 {
		return "empty"
	}
	got, damage, err := decode(object.(*corev1.Secret), time.Now(), 0)
	if err != nil || damage != "" {
		return "damaged"
	}
	got.sort()
	return c.describe(got, c.began)
}

// emptyState is as it comes with the permissions.
func emptyState() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: StateNamespace, Name: StateName}, Type: corev1.SecretTypeOpaque}
}

// edit changes the stored state by hand.
func (c *cluster) edit(change func(*corev1.Secret)) {
	c.t.Helper()
	edited := c.LiveSecret(c.t, StateNamespace, StateName).DeepCopy()
	change(edited)
	c.Live(c.t, edited)
}

func (c *cluster) remove() { c.Delete(c.t, emptyState()) }

// restore applies the permissions again.
func (c *cluster) restore() { c.Live(c.t, emptyState()) }

// recorded returns the Events, with the names of certificates in place of their fingerprints.
func (c *cluster) recorded() []string {
	synctest.Wait()
	var names []string
	for name, certificate := range c.authorities {
		names = append(names, fingerprint(certificate), string(name))
	}
	return c.Recorded.Lines(names...)
}

// requests counts what was sent, and forgets it.
func (c *cluster) requests() map[string]int {
	synctest.Wait()
	counts := map[string]int{}
	for _, action := range c.Client.Actions() {
		counts[action.GetVerb()]++
	}
	c.Client.ClearActions()
	return counts
}

// process is a BundleController that runs.
type process struct {
	*BundleController
	cluster *cluster
	stop    func()
	sets    int
}

func (c *cluster) start(file string, overlap time.Duration) *process {
	c.t.Helper()
	return c.startWith(c.bundle(c.t, file), overlap)
}

func (c *cluster) startWith(file *Bundle, overlap time.Duration) *process {
	c.t.Helper()
	p := &process{cluster: c}
	source := NewSource(file, nil)
	source.Register("test", Writer{Changed: func() { p.sets++ }})
	p.BundleController = NewBundleController(BundleControllerConfig{
		Client: c.Client, Source: source, Overlap: overlap,
		Recorder: c.Recorder(),
		Process:  &corev1.ObjectReference{Kind: "Lease", Name: "process"},
		Clock:    c.clock,
	})
	p.stop = testutil.Start(c.t, p.Run)
	return p
}

// overlapping starts one whose file changes from A to B.
func (c *cluster) overlapping() *process {
	c.t.Helper()
	p := c.start("A", time.Hour)
	synctest.Wait()
	p.offer("B")
	synctest.Wait()
	return p
}

// published is what the Source has, "unknown" before the state was read.
func (p *process) published() string {
	synctest.Wait()
	bundle, err := p.Source.Current()
	if err != nil {
		return "unknown"
	}
	return p.cluster.read(bundle.PEM())
}

func (p *process) offer(file string) { p.Set(p.cluster.bundle(p.cluster.t, file)) }

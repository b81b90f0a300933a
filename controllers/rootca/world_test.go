// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// authorities are certificates under names of one letter, so that a bundle is written as a word.
type authorities map[rune]*x509.Certificate

func newAuthorities(t testing.TB, names string) authorities {
	t.Helper()
	all := authorities{}
	for _, name := range names {
		parsed := testutil.Get(cert.ParseCertsPEM(certificate(t, string(name))))(t)
		all[name] = parsed[0]
	}
	return all
}

func (a authorities) certificates(word string) []*x509.Certificate {
	var certificates []*x509.Certificate
	for _, name := range word {
		certificates = append(certificates, a[name])
	}
	return certificates
}

// pem is what a file with these certificates holds.
func (a authorities) pem(word string) string { return string(encodePEM(a.certificates(word)...)) }

func (a authorities) bundle(t testing.TB, word string) *Bundle {
	t.Helper()
	return testutil.Get(ParseBundle([]byte(a.pem(word))))(t)
}

// word is the reverse, in the order of the text.
func (a authorities) word(certificates []*x509.Certificate) string {
	var word strings.Builder
	for _, certificate := range certificates {
		name := '?'
		for candidate, known := range a {
			if known.Equal(certificate) {
				name = candidate
			}
		}
		word.WriteRune(name)
	}
	return word.String()
}

func (a authorities) read(text []byte) string {
	certificates, err := cert.ParseCertsPEM(text)
	if err != nil {
		return err.Error()
	}
	return a.word(certificates)
}

// state reads "B AC@20m": the current certificates, and those in overlap with the time from now at which it ends.
func (a authorities) state(t testing.TB, text string, now time.Time) state {
	t.Helper()
	var s state
	file, overlap, _ := strings.Cut(text, " ")
	if file != "-" {
		s.file = a.bundle(t, file)
	}
	if names, after, found := strings.Cut(overlap, "@"); found {
		d := testutil.Get(time.ParseDuration(after))(t)
		s.previous, s.until = a.certificates(names), now.Add(d)
	}
	return s
}

func (a authorities) describe(s state, now time.Time) string {
	text := "-"
	if s.file != nil {
		text = a.word(s.file.certificates)
	}
	if len(s.previous) > 0 {
		text += fmt.Sprintf(" %s@%v", a.word(s.previous), s.until.Sub(now))
	}
	return text
}

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
	source.Changed.Subscribe(func(*Bundle) { p.sets++ })
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

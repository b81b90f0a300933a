// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/testutil"
)

// The tests run in synctest bubbles: the clock stands still while anything moves.

var (
	secrets    = schema.GroupResource{Resource: "secrets"}
	configMaps = schema.GroupResource{Resource: "configmaps"}
)

var (
	errForbidden = apierrors.NewForbidden(secrets, StateName, errors.New("no"))
	errDown      = apierrors.NewInternalError(errors.New("down"))
)

// cluster is an API server with the state in it, whose verbs fail on request. It outlives processes.
type cluster struct {
	t *testing.T
	authorities
	events *testutil.EventLog
	client *fake.Clientset
	began  time.Time
	clock  clock.WithTicker // of processes, the real one if nil

	mu       sync.Mutex
	failures map[string]error // by verb
}

func newCluster(t *testing.T, names string) *cluster {
	c := &cluster{t: t, authorities: newAuthorities(t, names), events: &testutil.EventLog{}, client: fake.NewClientset(emptyState()), failures: map[string]error{}, began: time.Now()}
	c.client.PrependReactor("*", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
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
	object, err := c.client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("secrets"), StateNamespace, StateName)
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
	sortPrevious(got.previous)
	return c.describe(got, c.began)
}

// emptyState is as it comes with the permissions.
func emptyState() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: StateNamespace, Name: StateName}, Type: corev1.SecretTypeOpaque}
}

// edit changes the stored state by hand.
func (c *cluster) edit(change func(*corev1.Secret)) {
	c.t.Helper()
	gvr := corev1.SchemeGroupVersion.WithResource("secrets")
	object, err := c.client.Tracker().Get(gvr, StateNamespace, StateName)
	if err != nil {
		c.t.Fatal(err)
	}
	edited := object.(*corev1.Secret).DeepCopy()
	change(edited)
	if err := c.client.Tracker().Update(gvr, edited, StateNamespace); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) remove() {
	c.t.Helper()
	if err := c.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("secrets"), StateNamespace, StateName); err != nil {
		c.t.Fatal(err)
	}
}

// restore applies the permissions again.
func (c *cluster) restore() {
	c.t.Helper()
	if err := c.client.Tracker().Add(emptyState()); err != nil {
		c.t.Fatal(err)
	}
}

// recorded returns the Events, with the names of certificates in place of their fingerprints.
func (c *cluster) recorded() []string {
	synctest.Wait()
	var names []string
	for name, certificate := range c.authorities {
		names = append(names, fingerprint(certificate), string(name))
	}
	return c.events.Lines(names...)
}

// requests counts what was sent, and forgets it.
func (c *cluster) requests() map[string]int {
	synctest.Wait()
	counts := map[string]int{}
	for _, action := range c.client.Actions() {
		counts[action.GetVerb()]++
	}
	c.client.ClearActions()
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
	p := &process{cluster: c}
	source := NewSource(c.bundle(c.t, file))
	source.OnChange(func() { p.sets++ })
	p.BundleController = NewBundleController(BundleControllerConfig{
		Client: c.client, Source: source, File: source.Current(), Overlap: overlap,
		Recorder: events.NewRecorderTo(c.events, clock.RealClock{}),
		Process:  &corev1.ObjectReference{Kind: "Lease", Name: "process"},
		Metrics:  NewMetrics(metrics.NewKubeRegistry().MustRegister),
		Clock:    c.clock,
	})
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := p.Run(ctx); err != nil {
			c.t.Error(err)
		}
	}()
	p.stop = func() { cancel(); <-ended }
	return p
}

// published is what the Source has, in brackets while it is provisional.
func (p *process) published() string {
	synctest.Wait()
	bundle := p.Source.Current()
	word := p.cluster.read(bundle.PEM())
	if bundle.provisional {
		return "(" + word + ")"
	}
	return word
}

func (p *process) offer(file string) { p.Set(p.cluster.bundle(p.cluster.t, file)) }

func TestAChangeOfTheRootCA(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "AB")
		p := c.start("A", time.Hour)
		defer p.stop()
		check(t, "published at the start", "A", p.published())
		check(t, "state at the start", "A", c.stored())
		check(t, "requests", map[string]int{"get": 1, "update": 1}, c.requests())

		p.offer("B")
		check(t, "published after the change", "BA", p.published())
		check(t, "state after the change", "B A@1h0m0s", c.stored())
		check(t, "requests", map[string]int{"get": 1, "update": 1}, c.requests())

		time.Sleep(time.Hour - time.Second)
		check(t, "published until the end", "BA", p.published())
		time.Sleep(time.Second)
		check(t, "published after the end", "B", p.published())
		check(t, "state after the end", "B", c.stored())
		check(t, "Events", []string{
			"process: Normal RootCAOverlapBegan Publish: the root CA has changed; the previous one (A) is published beside it until " + c.began.Add(time.Hour).UTC().Format(time.RFC3339),
			"process: Normal RootCAOverlapEnded Publish: a previous root CA (A) is not published any more",
		}, c.recorded())
		c.requests()

		sets := p.sets
		time.Sleep(24 * time.Hour)
		check(t, "requests in a day", map[string]int{"get": int(24 * time.Hour / resyncInterval)}, c.requests())
		check(t, "consumers told in a day", 0, p.sets-sets)
	})
}

func TestSeveralChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "ABC")
		p := c.start("A", time.Hour)
		defer p.stop()
		synctest.Wait()
		p.offer("B")
		time.Sleep(20 * time.Minute)
		p.offer("C")
		check(t, "published", "CBA", p.published())
		time.Sleep(40 * time.Minute)
		check(t, "published after the end of the first", "CB", p.published())
		p.offer("A") // back again
		check(t, "published after the return", "A"+c.word(c.certificates("CB")), p.published())
		time.Sleep(2 * time.Hour)
		check(t, "published in the end", "A", p.published())
		check(t, "state in the end", "A", c.stored())
	})
}

// A leader whose node has missed the change of the file publishes that, and says so.
func TestTheFileOfTheNextLeaderIsOlder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "AB")
		first := c.start("A", time.Hour)
		synctest.Wait()
		first.offer("B")
		synctest.Wait()
		first.stop()
		told := len(c.recorded())
		second := c.start("A", time.Hour)
		defer second.stop()
		check(t, "published", "AB", second.published())
		check(t, "Event", "process: Warning RootCAFileIsOlder Publish: the root CA file of this process holds A, which another file has replaced: "+
			"unless that was taken back, copy the newer --root-ca-file here before the overlap ends and its root CA is not published any more", c.recorded()[told+1])
		time.Sleep(2 * resyncInterval)
		check(t, "Events", told+2, len(c.recorded()))
	})
}

func TestARestart(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		file      string
		overlap   time.Duration
		edit      func(*cluster)
		published string
		stored    string
	}{
		"InOverlap":  {reason: "the union stays, and its end", file: "B", overlap: time.Hour, published: "BA", stored: "B A@1h0m0s"},
		"ChangedNow": {reason: "the file changed while nobody looked", file: "C", overlap: time.Hour, published: "CBA", stored: "C B@1h10m0s A@1h0m0s"},
		"OldFile":    {reason: "a replica whose file has not changed yet", file: "A", overlap: time.Hour, published: "AB", stored: "A B@1h10m0s"},
		"Zero":       {reason: "the previous one is compromised", file: "B", published: "B", stored: "B"},
		"Shorter":    {file: "B", overlap: 5 * time.Minute, published: "BA", stored: "B A@15m0s"},
		"Longer":     {reason: "what is promised already stays", file: "B", overlap: 9 * time.Hour, published: "BA", stored: "B A@1h0m0s"},
		"NoState":    {reason: "somebody deleted it", file: "B", overlap: time.Hour, edit: (*cluster).remove, published: "B", stored: "none"},
		"Emptied": {reason: "likewise", file: "B", overlap: time.Hour, published: "B", stored: "B", edit: func(c *cluster) {
			c.edit(func(o *corev1.Secret) { o.Data = nil })
		}},
		"Garbage": {reason: "is healed", file: "B", overlap: time.Hour, published: "B", stored: "B", edit: func(c *cluster) {
			c.edit(func(o *corev1.Secret) { o.Data = map[string][]byte{"hello": []byte("world")} })
		}},
		"HalfGarbage": {reason: "what is whole counts", file: "B", overlap: time.Hour, published: "BA", stored: "B A@1h0m0s", edit: func(c *cluster) {
			c.edit(func(o *corev1.Secret) { o.Data["current.crt"] = []byte("-----BEGIN") })
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, "ABC")
				first := c.start("A", time.Hour)
				synctest.Wait()
				first.offer("B")
				synctest.Wait()
				first.stop()
				if tc.edit != nil {
					tc.edit(c)
				}
				time.Sleep(10 * time.Minute)
				second := c.start(tc.file, tc.overlap)
				defer second.stop()
				check(t, tc.reason+": published", tc.published, second.published())
				check(t, tc.reason+": state", tc.stored, c.stored())
			})
		})
	}
}

// What is in memory counts while the process runs, whatever happens to the state.
func TestTheStateIsHealedFromMemory(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		do   func(*cluster)
		told string
	}{
		"Applied": {func(c *cluster) { c.remove(); c.restore() }, "wrote it again: it was emptied"},
		"Garbage": {func(c *cluster) { c.edit(func(o *corev1.Secret) { delete(o.Data, keyCurrent) }) }, "wrote it again: current.crt: is empty, want PEM with at least one certificate"},
		"Shrunk": {func(c *cluster) {
			c.edit(func(o *corev1.Secret) { o.Data = c.state(c.t, "B", time.Time{}).encode() })
		}, ""},
		"Poisoned": {func(c *cluster) {
			c.edit(func(o *corev1.Secret) { o.Data = c.state(c.t, "B C@500h", time.Now()).encode() })
		}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, "ABC")
				p := c.start("A", time.Hour)
				defer p.stop()
				synctest.Wait()
				p.offer("B")
				synctest.Wait()
				tc.do(c)
				time.Sleep(resyncInterval)
				check(t, "published", "BA", p.published())
				check(t, "state", "B A@1h0m0s", c.stored())
				var told string
				if lines := c.recorded(); len(lines) > 1 {
					_, told, _ = strings.Cut(lines[1], "RootCAStateRepaired Repair: ")
				}
				check(t, "Event", tc.told, told)
			})
		})
	}
}

// The process may not create it, says so, and publishes all the same.
func TestTheStateIsMissing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "AB")
		c.remove()
		p := c.start("A", time.Hour)
		defer p.stop()
		check(t, "published at the start", "A", p.published())
		p.offer("B")
		check(t, "published after the change", "BA", p.published())
		check(t, "first Event", `process: Warning RootCAStateUnavailable Publish: secrets "sa-controller-manager-root-ca" not found, `+
			`and this process may not create it: apply manifests/permissions, or "kubectl -n kube-system create secret generic sa-controller-manager-root-ca"; `+
			`until that is fixed a restart may end the overlap of a previous root CA before its time`, c.recorded()[0])
		time.Sleep(time.Minute)
		if n := c.requests()["get"]; n > 20 {
			t.Errorf("%d requests in a minute", n)
		}
		c.restore()
		time.Sleep(time.Minute)
		check(t, "state once it is there", "B A@1h0m0s", c.stored())
	})
}

// Who may write ConfigMaps of kube-system, but no Secrets, must not have a CA of his own published.
func TestAConfigMapPlantsNoRootCA(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "AX")
		planted := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: StateNamespace, Name: StateName},
			Data:       map[string]string{"schema-version": "1", "current.crt": c.pem("AX")},
		}
		if err := c.client.Tracker().Add(planted); err != nil {
			t.Fatal(err)
		}
		p := c.start("A", time.Hour)
		defer p.stop()
		check(t, "published", "A", p.published())
	})
}

func TestANewerState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "AB")
		first := c.start("A", time.Hour)
		synctest.Wait()
		first.stop()
		c.edit(func(o *corev1.Secret) { o.Data["schema-version"] = []byte("2") })
		c.requests()

		second := c.start("B", time.Hour)
		defer second.stop()
		check(t, "published at first", "(B)", second.published())
		time.Sleep(maxProvisional + time.Minute)
		check(t, "published after a while", "B", second.published())
		second.offer("A")
		check(t, "memory works all the same", "AB", second.published())
		if writes := c.requests(); writes["update"]+writes["create"] > 0 {
			t.Errorf("somebody else's state is written: %v", writes)
		}
		check(t, "first Event", `process: Warning RootCAStateUnavailable Publish: use secret kube-system/sa-controller-manager-root-ca: its schema-version is "2", `+
			`this program knows "1" only: run the newer version, or empty the Secret to give up what is in overlap; `+
			`until that is fixed a restart may end the overlap of a previous root CA before its time`, c.recorded()[0])
		c.edit(func(o *corev1.Secret) { o.Data = nil })
		time.Sleep(time.Minute)
		check(t, "state after that", "A B", strings.Split(c.stored(), "@")[0])
	})
}

func TestTheStateCannotBeRead(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		err  error
		told int
	}{"Forbidden": {errForbidden, 1}, "Down": {errDown, 0}}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, "ABC")
				first := c.start("A", time.Hour)
				synctest.Wait()
				first.offer("B")
				synctest.Wait()
				first.stop()
				told := len(c.recorded())

				c.fail(tc.err, "get")
				second := c.start("B", time.Hour)
				defer second.stop()
				check(t, "what is published is left alone", "(B)", second.published())
				time.Sleep(3 * time.Minute)
				check(t, "for minutes", "(B)", second.published())
				check(t, "Events", tc.told, len(c.recorded())-told)
				if n := c.requests()["get"]; n > 20 {
					t.Errorf("%d requests in 3 minutes", n)
				}
				c.fail(nil, "get")
				time.Sleep(time.Minute)
				check(t, "once it can be read", "BA", second.published())
				check(t, "state", "B A@1h0m0s", c.stored())
			})
		})
	}
}

func TestTheStateIsNotAwaitedForEver(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		overlap time.Duration
		do      func(*process)
		after   time.Duration
		want    string
	}{
		"LongOverlap":  {overlap: time.Hour, after: maxProvisional + time.Minute, want: "B"},
		"ShortOverlap": {reason: "what was in overlap has ended by then", overlap: 30 * time.Second, after: time.Minute, want: "B"},
		"NoOverlap":    {reason: "there is nothing to wait for", want: "B"},
		"NewFile":      {reason: "who changes the file now wants that to reach everybody", overlap: time.Hour, do: func(p *process) { p.offer("C") }, want: "CB"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, "ABC")
				c.fail(errDown, "get")
				p := c.start("B", tc.overlap)
				defer p.stop()
				synctest.Wait()
				if tc.do != nil {
					tc.do(p)
				}
				time.Sleep(tc.after)
				check(t, tc.reason, tc.want, p.published())
			})
		})
	}
}

// An end must not move because the state, which still calls the previous one current, could not be
// written.
func TestTheStateCannotBeWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "AB")
		p := c.start("A", time.Hour)
		defer p.stop()
		synctest.Wait()
		c.fail(errForbidden, "update")
		p.offer("B")
		check(t, "published", "BA", p.published())
		check(t, "state", "A", c.stored())
		c.requests()
		time.Sleep(time.Hour)
		check(t, "published after the end", "B", p.published())
		if n := c.requests()["update"]; n < 30 || n > 100 {
			t.Errorf("%d attempts in an hour", n)
		}
		time.Sleep(time.Hour)
		check(t, "published an hour later", "B", p.published())
		c.fail(nil, "update")
		time.Sleep(time.Minute)
		check(t, "state once it can be written", "B", c.stored())
		check(t, "Events", 2, strings.Count(strings.Join(c.recorded(), "\n"), "RootCAOverlap"))
	})
}

func TestARaceForTheState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "AB")
		c.edit(func(o *corev1.Secret) { o.Data = c.state(t, "A", c.began).encode() })
		c.fail(apierrors.NewConflict(secrets, StateName, errors.New("changed")), "update")
		p := c.start("B", time.Hour)
		defer p.stop()
		synctest.Wait()
		c.fail(nil, "update")
		c.requests()
		time.Sleep(conflictRequeue)
		check(t, "requests of the next try", map[string]int{"get": 1, "update": 1}, c.requests())
		check(t, "Events of it", 0, strings.Count(strings.Join(c.recorded(), ""), "RootCAState"))
	})
}

func TestAnAPIThatHangsDoesNotHoldUpTheUnion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "AB")
		p := c.start("A", time.Hour)
		defer p.stop()
		synctest.Wait()
		// The fake client knows no context, so that the time-out itself is imitated.
		c.client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(requestTimeout)
			return true, nil, context.DeadlineExceeded
		})
		p.offer("B")
		time.Sleep(requestTimeout)
		check(t, "published", "BA", p.published())
	})
}

func TestOfferOnAReplicaThatDoesNotLead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "AB")
		k := NewBundleController(BundleControllerConfig{Client: c.client, Source: NewSource(nil), File: c.bundle(t, "A"), Overlap: time.Hour})
		k.Set(c.bundle(t, "B"))
		check(t, "requests", map[string]int{}, c.requests())
		c.edit(func(o *corev1.Secret) { o.Data = c.state(t, "A", c.began).encode() })
		for range 2 { // terms
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			time.AfterFunc(time.Second/2, func() {
				check(t, "published once it leads", "BA", c.read(k.Source.Current().PEM()))
			})
			if err := k.Run(ctx); err != nil {
				t.Fatal(err)
			}
			cancel()
			check(t, "for the beginning of the next term", "B", c.read(k.Source.Current().PEM()))
		}
	})
}

// A root CA that is compromised must not be published again by a replica that begins to
// lead, before it has looked at the state.
func TestNewLeaderBeginsWithTheFileAsItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "AB")
		k := NewBundleController(BundleControllerConfig{Client: c.client, Source: NewSource(c.bundle(t, "A")), File: c.bundle(t, "A")})
		k.Set(c.bundle(t, "B")) // and makes no queue, whose goroutines would outlive the bubble
		check(t, "what other controllers find when they start", "B", c.read(k.Source.Current().PEM()))
	})
}

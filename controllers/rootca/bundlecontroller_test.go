// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/internal/testutil"
)

// The tests run in synctest bubbles: the clock stands still while anything moves.

func TestAChangeOfTheRootCA(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "AB")
		p := c.start("A", time.Hour)
		testutil.Check(t, "published at the start", "A", p.published())
		testutil.Check(t, "state at the start", "A", c.stored())
		testutil.Check(t, "requests", map[string]int{"get": 1, "update": 1}, c.requests())

		p.offer("B")
		testutil.Check(t, "published after the change", "BA", p.published())
		testutil.Check(t, "state after the change", "B A@1h0m0s", c.stored())
		testutil.Check(t, "requests", map[string]int{"get": 1, "update": 1}, c.requests())

		time.Sleep(time.Hour - time.Second)
		testutil.Check(t, "published until the end", "BA", p.published())
		time.Sleep(time.Second)
		testutil.Check(t, "published after the end", "B", p.published())
		testutil.Check(t, "state after the end", "B", c.stored())
		testutil.Check(t, "Events", []string{
			"process: Normal RootCAOverlapBegan Publish: the root CA has changed; the previous one (A) is published beside it until " + c.began.Add(time.Hour).UTC().Format(time.RFC3339),
			"process: Normal RootCAOverlapEnded Publish: a previous root CA (A) is not published any more",
		}, c.recorded())
		c.requests()

		sets := p.sets
		time.Sleep(24 * time.Hour)
		testutil.Check(t, "requests in a day", map[string]int{"get": int(24 * time.Hour / resyncInterval)}, c.requests())
		testutil.Check(t, "consumers told in a day", 0, p.sets-sets)
	})
}

// A leader whose node has missed the change of the file publishes that, and says so.
func TestTheFileOfTheNextLeaderIsOlder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "AB")
		first := c.overlapping()
		first.stop()
		told := len(c.recorded())
		second := c.start("A", time.Hour)
		testutil.Check(t, "published", "AB", second.published())
		testutil.Check(t, "Event", "process: Warning RootCAFileIsOlder Publish: the root CA file of this process holds A, which another file has replaced: "+
			"unless that was taken back, copy the newer --root-ca-file here before the overlap ends and its root CA is not published any more", c.recorded()[told+1])
		time.Sleep(2 * resyncInterval)
		testutil.Check(t, "Events", told+2, len(c.recorded()))
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
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, "ABC")
				first := c.overlapping()
				first.stop()
				if tc.edit != nil {
					tc.edit(c)
				}
				time.Sleep(10 * time.Minute)
				second := c.start(tc.file, tc.overlap)
				testutil.Check(t, tc.reason+": published", tc.published, second.published())
				testutil.Check(t, tc.reason+": state", tc.stored, c.stored())
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
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, "ABC")
				p := c.overlapping()
				tc.do(c)
				time.Sleep(resyncInterval)
				testutil.Check(t, "published", "BA", p.published())
				testutil.Check(t, "state", "B A@1h0m0s", c.stored())
				var told string
				if lines := c.recorded(); len(lines) > 1 {
					_, told, _ = strings.Cut(lines[1], "RootCAStateRepaired Repair: ")
				}
				testutil.Check(t, "Event", tc.told, told)
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
		testutil.Check(t, "published at the start", "A", p.published())
		p.offer("B")
		testutil.Check(t, "published after the change", "BA", p.published())
		testutil.Check(t, "first Event", `process: Warning RootCAStateUnavailable Publish: secrets "sa-controller-manager-root-ca" not found, `+
			`and this process may not create it: apply manifests/permissions, or "kubectl -n kube-system create secret generic sa-controller-manager-root-ca"; `+
			`until that is fixed a restart may end the overlap of a previous root CA before its time`, c.recorded()[0])
		time.Sleep(time.Minute)
		if n := c.requests()["get"]; n > 20 {
			t.Errorf("%d requests in a minute", n)
		}
		c.restore()
		time.Sleep(time.Minute)
		testutil.Check(t, "state once it is there", "B A@1h0m0s", c.stored())
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
		c.Live(t, planted)
		p := c.start("A", time.Hour)
		testutil.Check(t, "published", "A", p.published())
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
		testutil.Check(t, "published at first", "(B)", second.published())
		time.Sleep(maxProvisional + time.Minute)
		testutil.Check(t, "published after a while", "B", second.published())
		second.offer("A")
		testutil.Check(t, "memory works all the same", "AB", second.published())
		if writes := c.requests(); writes["update"]+writes["create"] > 0 {
			t.Errorf("somebody else's state is written: %v", writes)
		}
		testutil.Check(t, "first Event", `process: Warning RootCAStateUnavailable Publish: use secret kube-system/sa-controller-manager-root-ca: its schema-version is "2", `+
			`this program knows "1" only: run the newer version, or empty the Secret to give up what is in overlap; `+
			`until that is fixed a restart may end the overlap of a previous root CA before its time`, c.recorded()[0])
		c.edit(func(o *corev1.Secret) { o.Data = nil })
		time.Sleep(time.Minute)
		testutil.Check(t, "state after that", "A B", strings.Split(c.stored(), "@")[0])
	})
}

func TestTheStateCannotBeRead(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		err  error
		told int
	}{"Forbidden": {controllertest.Forbidden("secrets"), 1}, "Down": {errDown, 0}}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, "ABC")
				first := c.overlapping()
				first.stop()
				told := len(c.recorded())

				c.fail(tc.err, "get")
				second := c.start("B", time.Hour)
				testutil.Check(t, "what is published is left alone", "(B)", second.published())
				time.Sleep(3 * time.Minute)
				testutil.Check(t, "for minutes", "(B)", second.published())
				testutil.Check(t, "Events", tc.told, len(c.recorded())-told)
				if n := c.requests()["get"]; n > 20 {
					t.Errorf("%d requests in 3 minutes", n)
				}
				c.fail(nil, "get")
				time.Sleep(time.Minute)
				testutil.Check(t, "once it can be read", "BA", second.published())
				testutil.Check(t, "state", "B A@1h0m0s", c.stored())
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
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, "ABC")
				c.fail(errDown, "get")
				p := c.start("B", tc.overlap)
				synctest.Wait()
				if tc.do != nil {
					tc.do(p)
				}
				time.Sleep(tc.after)
				testutil.Check(t, tc.reason, tc.want, p.published())
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
		synctest.Wait()
		c.fail(controllertest.Forbidden("secrets"), "update")
		p.offer("B")
		testutil.Check(t, "published", "BA", p.published())
		testutil.Check(t, "state", "A", c.stored())
		c.requests()
		time.Sleep(time.Hour)
		testutil.Check(t, "published after the end", "B", p.published())
		if n := c.requests()["update"]; n < 30 || n > 100 {
			t.Errorf("%d attempts in an hour", n)
		}
		time.Sleep(time.Hour)
		testutil.Check(t, "published an hour later", "B", p.published())
		c.fail(nil, "update")
		time.Sleep(time.Minute)
		testutil.Check(t, "state once it can be written", "B", c.stored())
		testutil.Check(t, "Events", 2, strings.Count(strings.Join(c.recorded(), "\n"), "RootCAOverlap"))
	})
}

func TestARaceForTheState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "AB")
		c.edit(func(o *corev1.Secret) { o.Data = c.state(t, "A", c.began).encode() })
		c.fail(controllertest.Conflict("secrets"), "update")
		c.start("B", time.Hour)
		synctest.Wait()
		c.fail(nil, "update")
		c.requests()
		time.Sleep(conflictRequeue)
		testutil.Check(t, "requests of the next try", map[string]int{"get": 1, "update": 1}, c.requests())
		testutil.Check(t, "Events of it", 0, strings.Count(strings.Join(c.recorded(), ""), "RootCAState"))
	})
}

func TestAnAPIThatHangsDoesNotHoldUpTheUnion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "AB")
		p := c.start("A", time.Hour)
		synctest.Wait()
		// The fake client knows no context, so that the time-out itself is imitated.
		c.Client.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(requestTimeout)
			return true, nil, context.DeadlineExceeded
		})
		p.offer("B")
		time.Sleep(requestTimeout)
		testutil.Check(t, "published", "BA", p.published())
	})
}

func TestOfferOnAReplicaThatDoesNotLead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "AB")
		k := NewBundleController(BundleControllerConfig{Client: c.Client, Source: NewSource(nil), File: c.bundle(t, "A"), Overlap: time.Hour})
		k.Set(c.bundle(t, "B"))
		testutil.Check(t, "requests", map[string]int{}, c.requests())
		c.edit(func(o *corev1.Secret) { o.Data = c.state(t, "A", c.began).encode() })
		for range 2 { // terms
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			time.AfterFunc(time.Second/2, func() {
				testutil.Check(t, "published once it leads", "BA", c.read(k.Source.Current().PEM()))
			})
			testutil.Must(t, k.Run(ctx))
			cancel()
			testutil.Check(t, "for the beginning of the next term", "B", c.read(k.Source.Current().PEM()))
		}
	})
}

// A root CA that is compromised must not be published again by a replica that begins to
// lead, before it has looked at the state.
func TestNewLeaderBeginsWithTheFileAsItIs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "AB")
		k := NewBundleController(BundleControllerConfig{Client: c.Client, Source: NewSource(c.bundle(t, "A")), File: c.bundle(t, "A")})
		k.Set(c.bundle(t, "B")) // and makes no queue, whose goroutines would outlive the bubble
		testutil.Check(t, "what other controllers find when they start", "B", c.read(k.Source.Current().PEM()))
	})
}

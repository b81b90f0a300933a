// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/internal/testutil"
)

// The tests run in synctest bubbles: the clock stands still while anything moves.

func TestAChangeOfTheRootCA(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
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
			"process: Normal RootCAOverlapBegan: the root CA has changed; the previous one (A) is published beside it until " +
				c.began.Add(time.Hour).UTC().Format(time.RFC3339),
			"process: Normal RootCAOverlapEnded: a previous root CA (A) is not published any more",
		}, c.recorded())
		c.requests()

		sets := p.sets
		time.Sleep(24 * time.Hour)
		testutil.Check(t, "requests in a day", map[string]int{"get": int(24 * time.Hour / resyncInterval)}, c.requests())
		testutil.Check(t, "consumers told in a day", 0, p.sets-sets)
	})
}

// TestTwoChangesInOneOverlap: there is one end, which a restart and another leader keep, and which the Event names for all.
func TestTwoChangesInOneOverlap(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		c := newCluster(t, "ABC")
		first := c.overlapping()
		time.Sleep(40 * time.Minute)
		first.offer("C")
		testutil.Check(t, "published after the second change", "CBA", first.published())
		testutil.Check(t, "state after the second change", "C BA@1h40m0s", c.stored())
		testutil.Check(t, "Event", "process: Normal RootCAOverlapBegan: the root CA has changed; the previous one (B, A) is published "+
			"beside it until "+c.began.Add(100*time.Minute).UTC().Format(time.RFC3339), c.recorded()[1])
		first.stop()
		time.Sleep(50 * time.Minute)
		second := c.start("C", time.Hour)
		testutil.Check(t, "published by the next leader", "CBA", second.published())
		testutil.Check(t, "state of the next leader", "C BA@1h40m0s", c.stored())
		time.Sleep(10*time.Minute - time.Second)
		testutil.Check(t, "published until the end", "CBA", second.published())
		time.Sleep(time.Second)
		testutil.Check(t, "published after the end", "C", second.published())
	})
}

// What is in memory counts while the process runs, whatever happens to the state.
func TestTheStateIsHealedFromMemory(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		c := newCluster(t, "ABC")
		p := c.overlapping()
		c.edit(func(o *corev1.Secret) {
			o.Data = c.state(c.t, "B C@500h", time.Now()).encode()
			delete(o.Data, keyCurrent)
		})
		time.Sleep(resyncInterval)
		testutil.Check(t, "published", "BA", p.published())
		testutil.Check(t, "state", "B A@1h0m0s", c.stored())
		_, told, _ := strings.Cut(c.recorded()[1], "RootCAStateRepaired: ")
		testutil.Check(t, "Event", "wrote it again: current.crt: is empty, want PEM with at least one certificate", told)
	})
}

// The process may not create it, says so, and publishes all the same.
func TestTheStateIsMissing(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		c := newCluster(t, "AB")
		c.remove()
		p := c.start("A", time.Hour)
		testutil.Check(t, "published at the start", "A", p.published())
		p.offer("B")
		testutil.Check(t, "published after the change", "BA", p.published())
		testutil.Check(t, "first Event", `process: Warning RootCAStateUnavailable: secrets "sa-controller-manager-root-ca" not found, `+
			`and this process may not create it: apply manifests/permissions, or `+
			`"kubectl -n kube-system create secret generic sa-controller-manager-root-ca"; `+
			`until that is fixed a restart may end the overlap of a previous root CA before its time`, c.recorded()[0])
		time.Sleep(time.Minute)
		n := c.requests()["get"]
		testutil.Expect(t, n <= 20, "%d requests in a minute", n)
		c.restore()
		time.Sleep(time.Minute)
		testutil.Check(t, "state once it is there", "B A@1h0m0s", c.stored())
	})
}

// Who may write ConfigMaps of kube-system, but no Secrets, must not have a CA of his own published.
func TestAConfigMapPlantsNoRootCA(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
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

// What is published may hold a root CA that must stay, and that only the state knows.
func TestTheStateCannotBeRead(t *testing.T) {
	t.Parallel()
	set := func(version string) func(c *cluster) {
		return func(c *cluster) { c.edit(func(o *corev1.Secret) { o.Data["schema-version"] = []byte(version) }) }
	}
	for name, tc := range map[string]struct {
		begin, end func(*cluster)
		told       string // the Event
		published  string // once it can be read
	}{
		"Down": {begin: func(c *cluster) { c.fail(errDown, "get") }, end: func(c *cluster) { c.fail(nil, "get") }, published: "CBA"},
		"Forbidden": {
			begin: func(c *cluster) { c.fail(controllertest.Forbidden("secrets"), "get") }, end: func(c *cluster) { c.fail(nil, "get") },
			told: "read secret kube-system/sa-controller-manager-root-ca: ", published: "CBA",
		},
		"Newer": {
			begin: set("2"), end: set("1"), told: "use secret kube-system/sa-controller-manager-root-ca: its schema-version is \"2\", " +
				"this program knows \"1\" only: run the newer version, or empty the Secret to drop the overlapping certificates; ",
			published: "CBA",
		},
		"Emptied": {
			begin: set("2"), end: func(c *cluster) { c.edit(func(o *corev1.Secret) { o.Data = nil }) },
			told: "run the newer version, or empty the Secret", published: "C",
		},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			c := newCluster(t, "ABC")
			first := c.start("A", 3*time.Hour)
			synctest.Wait()
			first.offer("B")
			synctest.Wait()
			first.stop()
			told := len(c.recorded())

			tc.begin(c)
			c.requests()
			second := c.start("B", 3*time.Hour)
			testutil.Check(t, "published at the start", "unknown", second.published())
			second.offer("C")
			time.Sleep(time.Hour)
			testutil.Check(t, "published an hour later", "unknown", second.published())
			testutil.Check(t, "consumers told", 0, second.sets)
			requests := c.requests()
			n := requests["get"]
			testutil.Expect(t, n >= 30 && n <= 100, "%d requests in an hour", n)
			testutil.Check(t, "writes", 0, requests["update"]+requests["create"])
			events := strings.Join(c.recorded()[told:], "\n")
			testutil.Expect(t, (tc.told != "" || events == "") && strings.Contains(events, tc.told), "Events are %q, want %q", events,
				tc.told)
			const consequence = "until that is fixed new namespaces get the root CA file alone, what is published stays, " +
				"and no token Secret is filled"
			testutil.Expect(t, tc.told == "" || strings.Contains(events, consequence), "Events do not name the consequence: %q", events)

			tc.end(c)
			time.Sleep(time.Minute)
			testutil.Check(t, "once it can be read", tc.published, second.published())
		})
	}
}

// TestTheUnionIsTooLarge: the last union stays, without what has ended, until the file fits beside it.
func TestTheUnionIsTooLarge(t *testing.T) {
	t.Parallel()
	many := bytes.Join(slices.Collect(func(yield func([]byte) bool) {
		for i := 0; i < 40 && yield(certificate(t, fmt.Sprintf("%4000d", i))); i++ {
		}
	}), nil)
	const large = 512 << 10
	testutil.Check(t, "many certificates fit into a file, and not beside a large one", true, len(many) < large &&
		len(many) > maxUnion-large)
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "ABC")
		parse := func(text []byte) *Bundle { return testutil.Get(ParseBundle(text))(t) }
		p := c.startWith(parse(many), time.Hour)
		synctest.Wait()
		p.offer("B")
		time.Sleep(time.Second)
		text := []byte(c.pem("C"))
		p.Set(parse(append(text, bytes.Repeat([]byte("#"), large-len(text))...)))
		published := func() string { return regexp.MustCompile(`\?+`).ReplaceAllString(p.published(), "M") }
		testutil.Check(t, "published at once", "BM", published())
		testutil.Check(t, "the Event says so", true, strings.Contains(strings.Join(c.recorded(), "\n"),
			"Warning RootCAOverlapTooLarge: the root CA file is too large together with the root CAs in overlap: "))
		_, err := p.Check()
		testutil.Must(t, err)               // it is there in an hour
		time.Sleep(time.Hour + time.Minute) // a failed sync is retried within a minute
		testutil.Check(t, "published in an hour", "CB", published())
		time.Sleep(time.Hour + time.Minute)
		testutil.Check(t, "published in two hours", "C", published())
	})
}

// TestTheFileIsTooLarge: what was published last stays, also after a restart.
func TestTheFileIsTooLarge(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		c := newCluster(t, "A")
		first := c.start("A", time.Hour)
		synctest.Wait()
		first.stop()
		huge := testutil.Get(ParseBundle(append([]byte(c.pem("A")), bytes.Repeat([]byte("#"), maxUnion)...)))(t)
		p := c.startWith(huge, time.Hour)
		testutil.Check(t, "published", "A", p.published())
		_, err := p.Check()
		want := fmt.Sprintf("the root CA file is too large: %d bytes, want 786432 at most; what was published last stays, "+
			"remove certificates from the file", len(huge.pem))
		testutil.Check(t, "readiness", want, fmt.Sprint(err))
		testutil.Check(t, "Events", []string{"process: Warning RootCAOverlapTooLarge: " + want}, c.recorded())
		p.offer("A")
		testutil.Get(p.Check())(t)
	})
}

// An end must not move because the state, which still calls the previous one current, could not be
// written.
func TestTheStateCannotBeWritten(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
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
		n := c.requests()["update"]
		testutil.Expect(t, n >= 30 && n <= 100, "%d attempts in an hour", n)
		time.Sleep(time.Hour)
		testutil.Check(t, "published an hour later", "B", p.published())
		c.fail(controllertest.Conflict("secrets"), "update")
		time.Sleep(2 * time.Minute)
		c.fail(nil, "update")
		time.Sleep(conflictRequeue)
		testutil.Check(t, "state once it can be written", "B", c.stored())
		testutil.Check(t, "Events", 2, strings.Count(strings.Join(c.recorded(), "\n"), "RootCAOverlap"))
	})
}

// Each term begins with the file as it is by then, and with the state.
func TestSetOnAReplicaThatDoesNotLead(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		c := newCluster(t, "ABC")
		source := NewSource(c.bundle(t, "A"), nil)
		sets := 0
		source.Changed.Subscribe(func(*Bundle) { sets++ })
		k := NewBundleController(BundleControllerConfig{Client: c.Client, Source: source, Overlap: time.Hour, Recorder: c.Recorder(),
			Process: &corev1.ObjectReference{Kind: "Lease", Name: "process"}})
		p := &process{BundleController: k, cluster: c}
		// Between the terms another leader ends the overlap of A, which does not come back. The last file is an earlier one.
		for _, term := range []struct{ state, file, published string }{{"A", "B", "BA"}, {"B", "C", "CB"}, {"C B@1h", "B", "BC"}} {
			c.edit(func(o *corev1.Secret) { o.Data = c.state(t, term.state, c.began).encode() })
			c.requests()
			sets = 0
			p.offer(term.file)
			testutil.Check(t, "published before the term", "unknown", p.published())
			testutil.Check(t, "requests before the term", map[string]int{}, c.requests())
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			time.AfterFunc(time.Second/2, func() {
				bundle := testutil.Get(source.Current())(t)
				testutil.Check(t, "published once it leads", term.published, c.read(bundle.PEM()))
			})
			testutil.Must(t, k.Run(ctx))
			cancel()
			testutil.Check(t, "published after the term", "unknown", p.published())
			testutil.Check(t, "changes", 1, sets)
		}
		testutil.Check(t, "Event",
			"process: Warning RootCAFileIsOlder: the root CA file of this process holds B, which another file has replaced: "+
				"unless that was taken back, copy the newer root CA file here before the overlap ends "+
				"and its root CA is not published any more", strings.Join(c.recorded()[len(c.recorded())-1:], ""))
	})
}

// TestOverlapAcrossAJump: the end of an overlap is a time of day, which outlives the
// process. So a jump makes it come earlier or later by as much, and by no more.
func TestOverlapAcrossAJump(t *testing.T) {
	t.Parallel()
	const overlap = 2 * time.Hour
	for name, tc := range map[string]struct {
		reason     string
		jump, ends time.Duration
	}{
		"Forward": {reason: "shorter by the jump", jump: time.Hour, ends: overlap - time.Hour},
		"Back":    {reason: "as if it had begun then", jump: -time.Hour, ends: overlap + 10*time.Minute},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			clock, c := testutil.NewJumpingClock(), newCluster(t, "AB")
			c.clock = clock
			p := c.start("A", overlap)
			synctest.Wait()
			p.offer("B")
			testutil.Check(t, "published after the change", "BA", p.published())
			time.Sleep(10 * time.Minute)
			clock.Jump(tc.jump)
			p.offer("B") // or else it is looked at later
			testutil.Check(t, "published after the jump", "BA", p.published())
			time.Sleep(tc.ends - 10*time.Minute - time.Second)
			testutil.Check(t, tc.reason+": a second before the end", "BA", p.published())
			time.Sleep(time.Second)
			testutil.Check(t, tc.reason+": at the end", "B", p.published())
			testutil.Check(t, "state", "B", c.stored())
		})
	}
}

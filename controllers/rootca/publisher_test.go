// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/internal/testutil"
)

var active = controllertest.Active

// world is a cluster with a Publisher. It lives in a synctest bubble.
type world struct {
	*controllertest.World
	*Publisher
	authorities
	t *testing.T
}

// newWorld begins to publish a bundle of A and B.
func newWorld(t *testing.T, bundle string, objects ...runtime.Object) *world {
	a := newAuthorities(t, "AB")
	w := prepare(t, a, a.bundle(t, bundle), objects...)
	w.Start(t, w.Run)
	return w
}

func prepare(t *testing.T, a authorities, bundle *Bundle, objects ...runtime.Object) *world {
	w := &world{t: t, authorities: a, World: controllertest.NewWorld(time.Time{}, objects...)}
	w.NumberVersions("configmaps")
	w.Publisher = NewPublisher(PublisherConfig{
		Client: w.Client, Informers: w.Informers, Source: NewSource(bundle, nil), Metrics: NewMetrics(w.Registry.MustRegister),
		Recorder: w.Recorder(),
	})
	return w
}

// Run also runs the rollout, as a BundleController does.
func (w *world) Run(ctx context.Context) error {
	w.Source.rollout.Open()
	var rollout sync.WaitGroup
	rollout.Go(func() { w.Source.rollout.Run(ctx) })
	defer rollout.Wait()
	return w.Publisher.Run(ctx)
}

var configMapResource = corev1.SchemeGroupVersion.WithResource("configmaps")

func (w *world) get(namespace string) *corev1.ConfigMap {
	synctest.Wait()
	object, err := w.Client.Tracker().Get(configMapResource, namespace, informers.RootCAName)
	if err != nil {
		return nil
	}
	return object.(*corev1.ConfigMap)
}

// edit changes a ConfigMap as another client would.
func (w *world) edit(namespace string, changes ...func(*corev1.ConfigMap)) {
	object, err := w.Client.Tracker().Get(configMapResource, namespace, informers.RootCAName)
	if err != nil {
		return
	}
	edited := object.(*corev1.ConfigMap).DeepCopy()
	for _, change := range changes {
		change(edited)
	}
	w.Number(edited)
	w.Live(w.t, edited)
}

func (w *world) remove(namespace string) { w.Delete(w.t, w.get(namespace)) }

// requests are those but lists and watches since the last call, sorted.
func (w *world) requests() []string {
	synctest.Wait()
	made := []string{}
	for _, line := range w.Actions(w.t) {
		verb, object, _ := strings.Cut(line, " configmaps ")
		namespace, _, _ := strings.Cut(object, "/")
		made = append(made, verb+" "+namespace)
	}
	slices.Sort(made) // there are several workers
	return made
}

func (w *world) recorded() []string {
	synctest.Wait()
	return w.Recorded.Lines()
}

func TestPublish(t *testing.T) {
	t.Parallel()
	a := newAuthorities(t, "AB")
	bundle := a.bundle(t, "A")
	shop := func(changes ...func(*corev1.ConfigMap)) []runtime.Object {
		return []runtime.Object{active("shop"), right("shop", bundle, changes...)}
	}
	for name, tc := range map[string]struct {
		reason   string
		objects  []runtime.Object
		failures []error
		do       func(*world)
		want     []string
		missing  bool // there is no ConfigMap in the end
		wrong    bool // it is not what it is to be
	}{
		"Missing":      {objects: []runtime.Object{active("shop")}, want: []string{"create shop"}},
		"NewNamespace": {do: func(w *world) { w.Live(w.t, active("shop")) }, want: []string{"create shop"}},
		"EditedNow": {
			objects: shop(), do: func(w *world) { w.edit("shop", data("ca.crt", "mine"), data("more", "")) }, want: []string{"update shop"},
		},
		"DeletedNow": {objects: shop(), do: func(w *world) { w.remove("shop") }, want: []string{"create shop"}},
		"NamespaceGoes": {
			reason: "nothing is owed", objects: []runtime.Object{active("shop")},
			failures: []error{controllertest.NamespaceTerminating("configmaps")}, want: []string{"create shop"}, missing: true,
		},
		"NamespaceGone": {
			reason: "nothing is owed", objects: []runtime.Object{active("shop")}, failures: []error{controllertest.NotFound("configmaps")},
			want: []string{"create shop"}, missing: true,
		},
		"Refused": {
			reason: "tried again", objects: []runtime.Object{active("shop")}, want: []string{"create shop", "create shop", "create shop"},
			failures: []error{controllertest.Forbidden("configmaps"), errors.New("boom")},
		},
		"Conflict": {
			reason: "tried again", objects: shop(), failures: []error{controllertest.Conflict("configmaps")},
			do: func(w *world) { w.edit("shop", emptied) }, want: []string{"update shop", "update shop"},
		},
		"GoneMeanwhile": {
			reason: "the watch is about to say so", objects: shop(), failures: []error{controllertest.NotFound("configmaps")},
			do: func(w *world) { w.edit("shop", emptied) }, want: []string{"update shop"}, wrong: true,
		},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			w := prepare(t, a, bundle, tc.objects...)
			for _, verb := range []string{"create", "update"} {
				w.FailNext(verb, "configmaps", tc.failures...)
			}
			w.Start(t, w.Run)
			synctest.Wait()
			if tc.do != nil {
				tc.do(w)
			}
			time.Sleep(createdCheck - time.Millisecond)
			testutil.Check(t, tc.reason+"\nrequests", tc.want, w.requests())
			got := w.get("shop")
			testutil.Require(t, (got == nil) == tc.missing, "%s: the ConfigMap is %v", tc.reason, got)
			if got == nil || tc.wrong {
				return
			}
			want := right("shop", bundle)
			testutil.Check(t, "data", want.Data, got.Data)
			testutil.Check(t, "annotations", want.Annotations, got.Annotations)
		})
	}
}

// TestNothingIsPublishedWhileTheBundleIsUnknown: what is there may hold a root CA that must stay.
func TestNothingIsPublishedWhileTheBundleIsUnknown(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		a := newAuthorities(t, "AB")
		w := prepare(t, a, unknown, active("new"), active("old"), right("old", a.bundle(t, "B"), undescribed))
		w.Start(t, w.Run)
		w.Live(t, active("late"))
		w.edit("old", data("more", ""))
		testutil.Check(t, "requests before", []string{}, w.requests())
		w.Source.Set(a.bundle(t, "AB"))
		testutil.Check(t, "requests once it is known", []string{"create late", "create new", "update old"}, w.requests())
	})
}

// TestNewNamespacesWhileTheStateCannotBeRead: their Pods need a root CA, and what is there may hold more than the file.
func TestNewNamespacesWhileTheStateCannotBeRead(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		a := newAuthorities(t, "AB")
		w := prepare(t, a, unknown, active("new"), active("old"), right("old", a.bundle(t, "B")),
			active("emptied"), right("emptied", a.bundle(t, "B"), emptied))
		w.Start(t, w.Run)
		synctest.Wait()
		w.Source.publishAlone(a.bundle(t, "A"))
		testutil.Check(t, "requests", []string{"create new"}, w.requests())
		w.Live(t, active("late"))
		testutil.Check(t, "requests for a later one", []string{"create late"}, w.requests())
		testutil.Check(t, "bundle", "A", w.read([]byte(w.get("late").Data["ca.crt"])))
		w.Source.Set(a.bundle(t, "AB"))
		testutil.Check(t, "requests once it is known", []string{"update emptied", "update late", "update new", "update old"}, w.requests())
	})
}

func TestReplacementsAreCounted(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		w := newWorld(t, "A", active("shop"))
		check := func(what string, n float64) {
			t.Helper()
			synctest.Wait()
			testutil.Check(t, what, n, w.Series(t, "sacm_root_ca_replaced_by_others_total")["configmaps"])
		}
		for _, change := range []func(*corev1.ConfigMap){undescribed, emptied} {
			w.get("shop")
			w.edit("shop", change)
			check("what is no replacement", 0)
		}
		w.Source.Set(w.bundle(t, "B"))
		check("our own bundle", 0)
		w.edit("shop", data("ca.crt", "mine"))
		check("a replacement", 1)
	})
}

// TestAnotherWriterIsDamped: two writers of one object do not load kube-apiserver, the fight is reported for as long as it
// goes on, and no other namespace waits.
func TestAnotherWriterIsDamped(t *testing.T) {
	t.Parallel()
	store := func(w *world, object *corev1.ConfigMap, changes ...func(*corev1.ConfigMap)) (bool, runtime.Object, error) {
		for _, change := range changes {
			change(object)
		}
		w.Number(object)
		w.Live(w.t, object)
		return true, object, nil
	}
	for name, tc := range map[string]struct {
		reason, verb string
		answer       func(*world, *corev1.ConfigMap) (bool, runtime.Object, error) // to our writes in shop
		counts       bool
	}{
		"Mutated": {
			reason: "an admission policy writes its own bundle and stamps the object, so each write is an event", verb: "update",
			counts: true,
			answer: func(w *world, sent *corev1.ConfigMap) (bool, runtime.Object, error) {
				return store(w, sent, data("ca.crt", "corporate"))
			},
		},
		"Stripped": {
			reason: "an admission policy takes the change away: the version stays, and no event comes", verb: "update", counts: true,
			answer: func(w *world, _ *corev1.ConfigMap) (bool, runtime.Object, error) {
				stored, err := w.Client.Tracker().Get(configMapResource, "shop", informers.RootCAName)
				return true, stored, err
			},
		},
		"Emptied": {
			reason: "a user may empty it to have it written again, but not all day", verb: "update",
			answer: func(w *world, sent *corev1.ConfigMap) (bool, runtime.Object, error) {
				time.AfterFunc(time.Millisecond, func() { w.edit("shop", emptied) })
				return store(w, sent)
			},
		},
		"Deleted": {
			verb: "create", counts: true, answer: func(w *world, sent *corev1.ConfigMap) (bool, runtime.Object, error) {
				time.AfterFunc(time.Millisecond, func() { w.Delete(w.t, sent) })
				return store(w, sent)
			},
		},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			w := newWorld(t, "A", active("shop"), active("other"))
			testutil.Check(t, "requests at first", []string{"create other", "create shop"}, w.requests())
			time.Sleep(time.Hour)
			w.Client.PrependReactor(tc.verb, "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if action.GetNamespace() != "shop" {
					return false, nil, nil
				}
				return tc.answer(w, action.(interface{ GetObject() runtime.Object }).GetObject().DeepCopyObject().(*corev1.ConfigMap))
			})
			if tc.verb == "create" {
				w.remove("shop")
			} else {
				w.edit("shop", emptied)
			}
			synctest.Wait()
			testutil.Check(t, tc.reason+"\nrequests at once", []string{tc.verb + " shop"}, w.requests())
			w.edit("other", data("ca.crt", "mine"))
			testutil.Check(t, "requests for another namespace", []string{"update other"}, w.requests())
			time.Sleep(time.Minute)
			if n := len(w.requests()); n < 4 || n > 6 {
				t.Errorf("%s: %d writes in the first minute, want 5: after 1, 3, 7, 15 and 31 seconds", tc.reason, n)
			}
			w.Recorded.Lines()
			before := w.Series(t, "sacm_root_ca_replaced_by_others_total")["configmaps"]
			time.Sleep(time.Hour)
			n := len(w.requests())
			testutil.Expect(t, n >= 55 && n <= 61, "%s: %d writes in the next hour, want one a minute", tc.reason, n)
			want := 0.0
			if tc.counts {
				want = float64(n)
			}
			testutil.Check(t, "replacements counted", want, w.Series(t, "sacm_root_ca_replaced_by_others_total")["configmaps"]-before)
			testutil.Check(t, "Events", []string{"kube-root-ca.crt: Warning RootCAReplaced: " + NoteReplaced}, slices.Compact(w.recorded()))
		})
	}
}

// A user deletes it while the watch is interrupted, which shows neither then.
func TestAConfigMapThatIsNeverShown(t *testing.T) {
	t.Parallel()
	cases := map[string]error{"Created": nil, "AlreadyThere": controllertest.AlreadyExists("configmaps")}
	for name, answer := range cases {
		testutil.Bubble(t, name, func(t *testing.T) {
			w := newWorld(t, "A")
			synctest.Wait()
			shown := false
			w.Client.PrependReactor("create", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if shown {
					return false, nil, nil
				}
				shown = true // from now on
				return true, action.(clienttesting.CreateActionImpl).GetObject(), answer
			})
			w.Live(w.t, active("shop"))
			testutil.Check(t, "requests at first", []string{"create shop"}, w.requests())
			time.Sleep(createdCheck)
			testutil.Check(t, "requests after a while", []string{"create shop"}, w.requests())
			time.Sleep(time.Hour)
			testutil.Check(t, "requests once it is shown", []string{}, w.requests())
			testutil.Check(t, "Events", []string{}, w.recorded())
		})
	}
}

func TestAnImmutableOneIsTold(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		a := newAuthorities(t, "AB")
		w := prepare(t, a, a.bundle(t, "A"), active("shop"), right("shop", a.bundle(t, "B"), immutable))
		w.Start(t, w.Run)
		time.Sleep(24 * time.Hour)
		testutil.Check(t, "requests in a day", []string{}, w.requests())
		testutil.Check(t, "Events",
			[]string{"kube-root-ca.crt: Warning ImmutableRootCA: the ConfigMap is immutable and does not hold the root CA bundle as it " +
				"is now: delete it, it is created again at once"}, w.recorded())
	})
}

// TestAChangeIsRolledOutAtALimit: ten thousand namespaces must not be written at once, while one
// that has no root CA yet gets it without waiting for the others.
func TestAChangeIsRolledOutAtALimit(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		const many = 5 * rolloutRate
		var objects []runtime.Object
		for i := range many {
			objects = append(objects, active(fmt.Sprintf("ns-%04d", i)))
		}
		w := newWorld(t, "A", objects...)
		testutil.Check(t, "first publication, which is not limited", many, len(w.requests()))
		time.Sleep(time.Minute)

		w.Source.Set(w.bundle(t, "BA"))
		testutil.Check(t, "requests at once", rolloutBurst, len(w.requests()))
		w.Live(t, active("late"))
		testutil.Check(t, "requests for a new namespace", []string{"create late"}, w.requests())
		time.Sleep(time.Second)
		testutil.Check(t, "requests in the next second", rolloutRate, len(w.requests()))
		time.Sleep(4 * time.Second)
		testutil.Check(t, "requests until all have it", many-rolloutBurst-rolloutRate, len(w.requests()))
		for i := range many {
			testutil.Check(t, "bundle", "BA", w.read([]byte(w.get(fmt.Sprintf("ns-%04d", i)).Data["ca.crt"])))
		}
		testutil.Check(t, "Events", []string{}, w.recorded()) // there is no other publisher
	})
}

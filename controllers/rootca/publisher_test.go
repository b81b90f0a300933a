// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/testutil"
)

func namespace(name string, phase corev1.NamespacePhase) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NamespaceStatus{Phase: phase}}
}

func active(name string) *corev1.Namespace { return namespace(name, corev1.NamespaceActive) }

// namespaceTerminating is what the NamespaceLifecycle admission plugin answers.
func namespaceTerminating() error {
	err := apierrors.NewForbidden(configMaps, informers.RootCAName, errors.New("namespace is being terminated"))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	return err
}

// world is a cluster, and a Publisher in it that runs. It lives in a synctest bubble.
type world struct {
	*Publisher
	t *testing.T
	authorities
	events   *testutil.EventLog
	client   *fake.Clientset
	registry metrics.KubeRegistry
	stop     func()

	mu       sync.Mutex
	version  int
	failures []error // of the next writes; nil lets one through
	undo     bool    // somebody undoes every write
}

func newWorld(t *testing.T, bundle string, objects ...runtime.Object) *world {
	w := &world{t: t, authorities: newAuthorities(t, "AB"), events: &testutil.EventLog{}, registry: metrics.NewKubeRegistry()}
	return w.begin(w.bundle(t, bundle), objects...)
}

func (w *world) begin(bundle *Bundle, objects ...runtime.Object) *world {
	client := fake.NewClientset(objects...)
	client.PrependReactor("*", "configmaps", w.write)
	return w.run(bundle, client)
}

func (w *world) run(bundle *Bundle, client *fake.Clientset) *world {
	w.client = client
	seen := informers.New(w.client, 0)
	w.Publisher = NewPublisher(PublisherConfig{
		Client: w.client, Informers: seen, Source: NewSource(bundle), Metrics: NewMetrics(w.registry.MustRegister),
		Recorder: events.NewRecorderTo(w.events, clock.RealClock{}),
	})
	watching, unwatch := context.WithCancel(w.t.Context())
	working, cancel := context.WithCancel(w.t.Context())
	seen.Start(watching)
	seen.Await(watching)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	w.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
		unwatch()
		seen.Stop()
	}
	return w
}

// write fails as told, and gives each version a number, which the fake client does not.
func (w *world) write(action clienttesting.Action) (bool, runtime.Object, error) {
	var object runtime.Object
	switch a := action.(type) {
	case clienttesting.CreateActionImpl:
		object = a.GetObject()
	case clienttesting.UpdateActionImpl:
		object = a.GetObject()
	default:
		return false, nil, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version++
	object.(*corev1.ConfigMap).ResourceVersion = fmt.Sprint(w.version)
	if len(w.failures) > 0 {
		err := w.failures[0]
		w.failures = w.failures[1:]
		return err != nil, nil, err
	}
	if w.undo {
		namespace := object.(*corev1.ConfigMap).Namespace
		time.AfterFunc(time.Millisecond, func() { w.edit(namespace, data("ca.crt", "mine")) })
	}
	return false, nil, nil
}

var configMapResource = corev1.SchemeGroupVersion.WithResource("configmaps")

func (w *world) get(namespace string) *corev1.ConfigMap {
	synctest.Wait()
	object, err := w.client.Tracker().Get(configMapResource, namespace, informers.RootCAName)
	if err != nil {
		return nil
	}
	return object.(*corev1.ConfigMap)
}

// edit changes a ConfigMap by somebody else's hand.
func (w *world) edit(namespace string, changes ...func(*corev1.ConfigMap)) {
	object, err := w.client.Tracker().Get(configMapResource, namespace, informers.RootCAName)
	if err != nil {
		return
	}
	edited := object.(*corev1.ConfigMap).DeepCopy()
	for _, change := range changes {
		change(edited)
	}
	w.mu.Lock()
	w.version++
	edited.ResourceVersion = fmt.Sprint(w.version)
	w.mu.Unlock()
	if err := w.client.Tracker().Update(configMapResource, edited, namespace); err != nil {
		w.t.Error(err)
	}
}

func (w *world) remove(namespace string) {
	if err := w.client.Tracker().Delete(configMapResource, namespace, informers.RootCAName); err != nil {
		w.t.Error(err)
	}
}

// undoes has somebody undo every write from now on, or no more.
func (w *world) undoes(undo bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.undo = undo
}

// add creates a namespace, or replaces the one of that name.
func (w *world) add(namespace *corev1.Namespace) {
	gvr := corev1.SchemeGroupVersion.WithResource("namespaces")
	if w.client.Tracker().Update(gvr, namespace, "") == nil {
		return
	}
	if err := w.client.Tracker().Add(namespace); err != nil {
		w.t.Error(err)
	}
}

// requests are those but lists and watches since the last call, sorted.
func (w *world) requests() []string {
	synctest.Wait()
	made := []string{}
	for _, action := range w.client.Actions() {
		if verb := action.GetVerb(); verb != "list" && verb != "watch" {
			made = append(made, verb+" "+action.GetNamespace())
		}
	}
	w.client.ClearActions()
	slices.Sort(made) // there are several workers
	return made
}

func (w *world) recorded() []string {
	synctest.Wait()
	return w.events.Lines()
}

// series are those of a metric.
func (w *world) series(name string) []string {
	synctest.Wait()
	return testutil.Series(w.registry, name)
}

func TestPublish(t *testing.T) {
	t.Parallel()
	a := newAuthorities(t, "AB")
	bundle := a.bundle(t, "A")
	terminatingNamespace := namespace("shop", corev1.NamespaceTerminating)
	forbidden := apierrors.NewForbidden(configMaps, informers.RootCAName, errors.New("no"))
	shop := func(changes ...func(*corev1.ConfigMap)) []runtime.Object {
		return []runtime.Object{active("shop"), right("shop", bundle, changes...)}
	}
	cases := map[string]struct {
		reason   string
		objects  []runtime.Object
		failures []error
		do       func(*world)
		want     []string
		missing  bool // there is no ConfigMap in the end
		wrong    bool // it is not what it is to be
	}{
		"Missing":         {objects: []runtime.Object{active("shop")}, want: []string{"create shop"}},
		"Right":           {objects: shop(), want: []string{}},
		"Edited":          {objects: shop(data("ca.crt", "mine")), want: []string{"update shop"}},
		"Terminating":     {objects: []runtime.Object{terminatingNamespace}, want: []string{}, missing: true},
		"NoNamespace":     {reason: "it is gone, and its content about to be", objects: []runtime.Object{right("shop", bundle, emptied)}, want: []string{}, wrong: true},
		"NewNamespace":    {do: func(w *world) { w.add(active("shop")) }, want: []string{"create shop"}},
		"EditedNow":       {objects: shop(), do: func(w *world) { w.edit("shop", data("ca.crt", "mine"), data("more", "")) }, want: []string{"update shop"}},
		"UndescribedNow":  {objects: shop(), do: func(w *world) { w.edit("shop", undescribed) }, want: []string{"update shop"}},
		"DeletedNow":      {objects: shop(), do: func(w *world) { w.remove("shop") }, want: []string{"create shop"}},
		"DeletedAndGoing": {objects: shop(), do: func(w *world) { w.add(terminatingNamespace); synctest.Wait(); w.remove("shop") }, want: []string{}, missing: true},
		"Immutable":       {objects: shop(immutable, emptied), want: []string{}, wrong: true},
		"ImmutableGoes": {
			reason: "as the Event says", objects: shop(immutable, emptied),
			do: func(w *world) { w.remove("shop") }, want: []string{"create shop"},
		},
		"AlreadyThere":   {reason: "the watch is about to bring it", objects: []runtime.Object{active("shop")}, failures: []error{apierrors.NewAlreadyExists(configMaps, "")}, want: []string{"create shop"}, missing: true},
		"NamespaceGoes":  {reason: "nothing is owed", objects: []runtime.Object{active("shop")}, failures: []error{namespaceTerminating()}, want: []string{"create shop"}, missing: true},
		"NamespaceGone":  {reason: "nothing is owed", objects: []runtime.Object{active("shop")}, failures: []error{apierrors.NewNotFound(configMaps, "")}, want: []string{"create shop"}, missing: true},
		"Refused":        {reason: "tried on", objects: []runtime.Object{active("shop")}, failures: []error{forbidden, forbidden}, want: []string{"create shop", "create shop", "create shop"}},
		"Conflict":       {reason: "tried again", objects: shop(), failures: []error{apierrors.NewConflict(configMaps, "", nil)}, do: func(w *world) { w.edit("shop", emptied) }, want: []string{"update shop", "update shop"}},
		"GoneMeanwhile":  {reason: "the watch is about to say so", objects: shop(), failures: []error{apierrors.NewNotFound(configMaps, "")}, do: func(w *world) { w.edit("shop", emptied) }, want: []string{"update shop"}, wrong: true},
		"LabelledByUser": {objects: shop(), do: func(w *world) { w.edit("shop", func(c *corev1.ConfigMap) { c.Labels = map[string]string{"a": "b"} }) }, want: []string{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := (&world{t: t, authorities: a, events: &testutil.EventLog{}, registry: metrics.NewKubeRegistry(), failures: tc.failures}).begin(bundle, tc.objects...)
				defer w.stop()
				synctest.Wait()
				if tc.do != nil {
					tc.do(w)
				}
				time.Sleep(repairDelay - time.Millisecond)
				check(t, tc.reason+"\nrequests", tc.want, w.requests())
				got := w.get("shop")
				if (got == nil) != tc.missing {
					t.Fatalf("%s: the ConfigMap is %v", tc.reason, got)
				}
				if got == nil || tc.wrong {
					return
				}
				want := right("shop", bundle)
				check(t, "data", want.Data, got.Data)
				check(t, "annotations", want.Annotations, got.Annotations)
			})
		})
	}
}

func TestANewBundleReachesEveryNamespace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "A", active("one"), active("two"), namespace("three", corev1.NamespaceTerminating))
		defer w.stop()
		check(t, "requests", []string{"create one", "create two"}, w.requests())
		for i := range 10 { // there is no other publisher
			bundle := []string{"BA", "B", "AB", "A"}[i%4]
			w.Source.Set(w.bundle(t, bundle))
			check(t, "requests", []string{"update one", "update two"}, w.requests())
			for _, name := range []string{"one", "two"} {
				check(t, "bundle of "+name, bundle, w.read([]byte(w.get(name).Data["ca.crt"])))
			}
		}
		w.Source.Set(w.bundle(t, "AB").Provisional())
		check(t, "requests for a provisional bundle", []string{}, w.requests())
		w.add(active("four"))
		check(t, "requests for a new namespace", []string{"create four"}, w.requests())
		check(t, "Events", []string{}, w.recorded())
	})
}

func TestAnUpdateKeepsWhatOthersWrote(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAuthorities(t, "AB")
		theirs := right("shop", a.bundle(t, "B"), func(c *corev1.ConfigMap) {
			c.Labels, c.Finalizers, c.UID, c.ResourceVersion = map[string]string{"a": "b"}, []string{"c/d"}, "uid", "17"
			c.Annotations["e"] = "f"
			c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "somebody"}}
		})
		w := (&world{t: t, authorities: a, events: &testutil.EventLog{}, registry: metrics.NewKubeRegistry()}).begin(a.bundle(t, "A"), active("shop"), theirs)
		defer w.stop()
		got := w.get("shop")
		check(t, "labels", theirs.Labels, got.Labels)
		check(t, "annotations", theirs.Annotations, got.Annotations)
		check(t, "finalizers", theirs.Finalizers, got.Finalizers)
		check(t, "UID", theirs.UID, got.UID)
		for _, action := range w.client.Actions() {
			if update, ok := action.(clienttesting.UpdateActionImpl); ok {
				check(t, "managed fields, which kube-apiserver keeps", 0, len(update.GetObject().(*corev1.ConfigMap).ManagedFields))
				check(t, "field manager", "sa-controller-manager", update.GetUpdateOptions().FieldManager)
			}
		}
	})
}

func TestAFightSlowsDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "A", active("shop"), active("peaceful"))
		defer w.stop()
		time.Sleep(repairDelay)
		w.requests()
		w.undoes(true)
		w.edit("shop", data("ca.crt", "mine"))
		check(t, "requests at first", []string{"update shop"}, w.requests())
		time.Sleep(time.Hour)
		if n := len(w.requests()); n < 12 || n > 12+9 { // one each 5m, and those that double up to that
			t.Errorf("%d repairs in an hour", n)
		}
		w.undoes(false)
		time.Sleep(2 * maxRepairDelay)
		check(t, "bundle in the end", "A", w.read([]byte(w.get("shop").Data["ca.crt"])))
		w.requests()
		for _, name := range []string{"peaceful", "shop"} {
			w.edit(name, data("ca.crt", "mine"))
			check(t, "requests where there is peace", []string{"update " + name}, w.requests())
		}
	})
}

// TestTwoPublishers with different bundles, such as ours and that of another cluster of
// replicas.
func TestTwoPublishers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "A", active("shop"))
		defer w.stop()
		other := (&world{t: t, events: &testutil.EventLog{}, registry: metrics.NewKubeRegistry()}).run(w.bundle(t, "B"), w.client)
		time.Sleep(time.Hour)
		if n := len(w.requests()); n < 12 || n > 2*(12+9) {
			t.Errorf("the two have made %d requests in an hour", n)
		}
		other.stop()
		time.Sleep(2 * maxRepairDelay)
		check(t, "bundle in the end", "A", w.read([]byte(w.get("shop").Data["ca.crt"])))
		check(t, "Events", []string{}, w.recorded())
	})
}

func TestReplacementsAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "A", active("shop"))
		defer w.stop()
		synctest.Wait()
		w.edit("shop", undescribed)
		synctest.Wait()
		w.edit("shop", emptied)
		synctest.Wait()
		w.Source.Set(w.bundle(t, "B"))
		synctest.Wait()
		want := func(n int) []string {
			return []string{
				fmt.Sprintf(`sacm_root_ca_replaced_by_others_total{resource="configmaps"} %d`, n),
				`sacm_root_ca_replaced_by_others_total{resource="secrets"} 0`,
			}
		}
		check(t, "what is no replacement", want(0), w.series("sacm_root_ca_replaced_by_others_total"))
		w.edit("shop", data("ca.crt", "mine"))
		check(t, "a replacement", want(1), w.series("sacm_root_ca_replaced_by_others_total"))
	})
}

// A user deletes it while the watch is interrupted, which shows neither then.
func TestAConfigMapThatIsNeverShown(t *testing.T) {
	t.Parallel()
	cases := map[string]error{"Created": nil, "AlreadyThere": apierrors.NewAlreadyExists(configMaps, "")}
	for name, answer := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "A")
				defer w.stop()
				synctest.Wait()
				shown := false
				w.client.PrependReactor("create", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
					if shown {
						return false, nil, nil
					}
					shown = true // from now on
					return true, action.(clienttesting.CreateActionImpl).GetObject(), answer
				})
				w.add(active("shop"))
				time.Sleep(repairDelay - time.Millisecond)
				check(t, "requests at first", []string{"create shop"}, w.requests())
				time.Sleep(time.Millisecond)
				check(t, "requests after a while", []string{"create shop"}, w.requests())
				time.Sleep(time.Hour)
				check(t, "requests once it is shown", []string{}, w.requests())
				check(t, "Events", []string{}, w.recorded())
			})
		})
	}
}

func TestAnImmutableOneIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAuthorities(t, "AB")
		w := (&world{t: t, authorities: a, events: &testutil.EventLog{}, registry: metrics.NewKubeRegistry()}).
			begin(a.bundle(t, "A"), active("shop"), right("shop", a.bundle(t, "B"), immutable))
		defer w.stop()
		time.Sleep(24 * time.Hour)
		check(t, "requests in a day", []string{}, w.requests())
		check(t, "Events", []string{"kube-root-ca.crt: Warning ImmutableRootCA Publish: the ConfigMap is immutable and does not hold the root CA bundle as it is now: " +
			"delete it, it is created again at once"}, w.recorded())
	})
}

func TestManyNamespacesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "A")
		defer w.stop()
		var want []string
		for i := range 50 {
			name := fmt.Sprintf("shop-%03d", i)
			w.add(active(name))
			labelled := active(name)
			labelled.Labels = map[string]string{"a": "b"}
			w.add(labelled) // again, before the watch may have shown what was created
			want = append(want, "create "+name)
		}
		time.Sleep(time.Minute)
		check(t, "requests", want, w.requests())
	})
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAuthorities(t, "A")
		w := (&world{t: t, authorities: a, events: &testutil.EventLog{}, registry: metrics.NewKubeRegistry(), failures: []error{
			apierrors.NewForbidden(configMaps, "", errors.New("no")), errors.New("boom"),
		}}).begin(a.bundle(t, "A"), active("shop"))
		defer w.stop()
		time.Sleep(time.Second)
		check(t, "series", []string{
			`root_ca_cert_publisher_sync_total{code="200"} 2`, // and once for what came back
			`root_ca_cert_publisher_sync_total{code="403"} 1`,
			`root_ca_cert_publisher_sync_total{code="500"} 1`,
		}, w.series("root_ca_cert_publisher_sync_total"))
	})
}

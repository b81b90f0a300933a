// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/internal/testutil"
)

var trustBundleResource = certificatesv1.SchemeGroupVersion.WithResource("clustertrustbundles")

// trustWorld is a cluster with a TrustBundlePublisher. It lives in a synctest bubble.
type trustWorld struct {
	*controllertest.World
	*TrustBundlePublisher
	authorities
	t *testing.T

	bundle *Bundle // to publish at first

	mu     sync.Mutex
	counts []int // how many bundles there were, from the first on
}

func prepareTrust(t *testing.T, a authorities, bundle *Bundle, objects ...runtime.Object) *trustWorld {
	t.Helper()
	w := &trustWorld{t: t, authorities: a, bundle: bundle, World: controllertest.NewWorld(time.Time{}, objects...)}
	w.Client.PrependReactor("*", "clustertrustbundles", w.count)
	w.NumberVersions("clustertrustbundles")
	w.TrustBundlePublisher = NewTrustBundlePublisher(PublisherConfig{
		Client: w.Client, Source: NewSource(unknown, nil), Metrics: NewMetrics(w.Registry.MustRegister), Recorder: w.Recorder(),
	})
	return w
}

// bundleOf is a ClusterTrustBundle as a field manager publishes it, of an age in minutes.
func (a authorities) bundleOf(manager, word string, age int) *certificatesv1.ClusterTrustBundle {
	text := a.pem(word)
	bundle, err := ParseBundle([]byte(text))
	if err != nil {
		panic(err)
	}
	return &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{
			Name: trustBundleName(bundle.hash), UID: types.UID("uid-" + word), ResourceVersion: "7",
			CreationTimestamp: metav1.NewTime(time.Now().Add(-time.Duration(age) * time.Minute)),
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: manager, APIVersion: "certificates.k8s.io/v1", Operation: metav1.ManagedFieldsOperationUpdate,
				FieldsType: "FieldsV1",
				FieldsV1:   metav1.NewFieldsV1(`{"f:spec":{"f:signerName":{},"f:trustBundle":{}}}`),
			}},
		},
		Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: ServingSigner, TrustBundle: text},
	}
}

// named replaces the names of bundles by their words.
func (a authorities) named(line string) string {
	for _, word := range []string{"A", "B", "C", "BA", "CBA", "CB", "CA"} {
		if !strings.ContainsFunc(word, func(r rune) bool { return a[r] == nil }) {
			line = strings.ReplaceAll(line, a.bundleOf("", word, 0).Name, word)
		}
	}
	return line
}

// live are the words of the bundles that there are.
func (w *trustWorld) live() []string {
	synctest.Wait()
	all := []string{}
	for _, one := range w.list() {
		all = append(all, w.named(one.Name)+"="+w.read([]byte(one.Spec.TrustBundle)))
	}
	slices.Sort(all)
	return all
}

func (w *trustWorld) list() []certificatesv1.ClusterTrustBundle {
	object, err := w.Client.Tracker().List(trustBundleResource, certificatesv1.SchemeGroupVersion.WithKind("ClusterTrustBundle"), "")
	testutil.Must(w.t, err)
	return object.(*certificatesv1.ClusterTrustBundleList).Items
}

// requests are the writes since the last call.
func (w *trustWorld) requests() []string {
	synctest.Wait()
	var made []string
	for _, line := range w.Actions(w.t) {
		made = append(made, w.named(strings.ReplaceAll(line, "clustertrustbundles ", "")))
	}
	return made
}

func (w *trustWorld) events() []string {
	synctest.Wait()
	var all []string
	for _, line := range w.Recorded.Lines() {
		all = append(all, w.named(line))
	}
	return all
}

// count notes how many bundles there are before each request.
func (w *trustWorld) count(clienttesting.Action) (bool, runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts = append(w.counts, len(w.list()))
	return false, nil, nil
}

func (w *trustWorld) run(t *testing.T) (stop func()) {
	stop = w.Start(t, w.Run)
	synctest.Wait() // the fake API server loses what changes between a list and its watch
	w.Source.Set(w.bundle)
	synctest.Wait()
	return stop
}

func TestTrustBundle(t *testing.T) {
	t.Parallel()
	const kcm, ours, other = "kube-controller-manager", "sa-controller-manager", "other"
	a := newAuthorities(t, "ABC")
	edited := func(object *certificatesv1.ClusterTrustBundle, word string) *certificatesv1.ClusterTrustBundle {
		object.Spec.TrustBundle = a.pem(word)
		return object
	}
	labelled := a.bundleOf(kcm, "A", 1)
	labelled.ManagedFields = append(labelled.ManagedFields, metav1.ManagedFieldsEntry{
		Manager: "kubectl-label", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:a":{}}}}`),
	})
	foreign := ": Warning ForeignTrustBundle: neither this program nor kube-controller-manager has published "
	stays := ": it stays, and Pods trust it for kube-apiserver until it is deleted"
	type objects = []runtime.Object
	creates, deletesA, all := []string{"create B"}, []string{"delete A [uid-A 7]"}, []string{"B=B"}
	for name, tc := range map[string]struct {
		reason       string
		objects      objects
		first        []string // requests at once
		second       []string // requests once the successor has been there for a moment
		live, events []string
	}{
		"None":        {first: creates, live: all},
		"Takeover":    {reason: "same file, same name: nothing to do", objects: objects{a.bundleOf(kcm, "B", 1)}, live: all},
		"Predecessor": {objects: objects{a.bundleOf(ours, "A", 1)}, first: creates, second: deletesA, live: all},
		"OfKCM":       {objects: objects{a.bundleOf(kcm, "A", 1)}, first: creates, second: deletesA, live: all},
		"Labelled": {
			reason: "a label does not make it another client's", objects: objects{labelled}, first: creates, second: deletesA, live: all,
		},
		"Interrupted": {
			reason: "the previous leader has created the successor", objects: objects{a.bundleOf(ours, "A", 1), a.bundleOf(ours, "B", 0)},
			first: deletesA, live: all,
		},
		"TwoPrevious": {
			reason:  "two at most: the newer one is enough until B is there",
			objects: objects{a.bundleOf(ours, "C", 1), a.bundleOf(ours, "A", 2)},
			first:   []string{"delete A [uid-A 7]", "create B"}, second: []string{"delete C [uid-C 7]"}, live: all,
		},
		"Edited": {objects: objects{edited(a.bundleOf(ours, "B", 1), "A")}, first: []string{"update B [7]"}, live: all},
		"Foreign": {
			objects: objects{a.bundleOf(other, "A", 1)}, first: creates, live: []string{"A=A", "B=B"},
			events: []string{"A" + foreign + "A of other" + stays},
		},
		"ForeignContent": {
			reason: "its name is not that of its content", objects: objects{edited(a.bundleOf(kcm, "A", 1), "C")}, first: creates,
			live: []string{"A=C", "B=B"}, events: []string{"A" + foreign + "A of kube-controller-manager" + stays},
		},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			w := prepareTrust(t, a, a.bundle(t, "B"), tc.objects...)
			w.run(t)
			// A creation is tried again while the cache is stale.
			testutil.Check(t, tc.reason+"\nrequests at once", tc.first, slices.Compact(w.requests()))
			time.Sleep(createdCheck - time.Millisecond)
			testutil.Check(t, "requests before a second has passed", []string(nil), w.requests())
			time.Sleep(2 * time.Millisecond)
			testutil.Check(t, tc.reason+"\nrequests a second later", tc.second, w.requests())
			time.Sleep(time.Hour)
			testutil.Check(t, "requests in an hour", []string(nil), w.requests())
			testutil.Check(t, "bundles", tc.live, w.live())
			testutil.Check(t, "Events", tc.events, slices.Compact(w.events()))
			for _, one := range w.list() {
				testutil.Check(t, "signer", ServingSigner, one.Spec.SignerName)
			}
			testutil.Get(w.Check())(t)
		})
	}
}

// TestTrustBundleOverlap exchanges the root CA, also faster than a successor has been there for a moment: there is
// always a bundle, and there are never more than two.
func TestTrustBundleOverlap(t *testing.T) {
	t.Parallel()
	for _, pause := range []time.Duration{time.Millisecond, 10 * time.Millisecond, createdCheck - time.Millisecond, time.Minute} {
		testutil.Bubble(t, pause.String(), func(t *testing.T) {
			a := newAuthorities(t, "ABC")
			w := prepareTrust(t, a, a.bundle(t, "A"))
			w.run(t)
			w.mu.Lock()
			w.counts = nil
			w.mu.Unlock()
			for _, word := range []string{"BA", "B", "CB", "C", "A"} {
				w.Source.Set(a.bundle(t, word))
				time.Sleep(pause)
			}
			time.Sleep(time.Minute)
			testutil.Check(t, "bundles in the end", []string{"A=A"}, w.live())
			w.checkCounts()
			testutil.Check(t, "Events", []string(nil), w.events())
		})
	}
}

func (w *trustWorld) checkCounts() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.counts) == 0 || slices.Min(w.counts) < 1 || slices.Max(w.counts) > 2 {
		w.t.Errorf("there were %v bundles, want one or two at each time", w.counts)
	}
}

// TestSecondTrustBundlePublisher: kube-controller-manager's deletes every bundle but its own at once.
func TestSecondTrustBundlePublisher(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		a := newAuthorities(t, "AB")
		w := prepareTrust(t, a, a.bundle(t, "A"), a.bundleOf("kube-controller-manager", "A", 1))
		var kcm atomic.Bool
		kcm.Store(true)
		w.Client.PrependReactor("create", "clustertrustbundles", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if created := action.(clienttesting.CreateActionImpl).GetObject().(metav1.Object); kcm.Load() {
				time.AfterFunc(time.Millisecond, func() { _ = w.Client.Tracker().Delete(trustBundleResource, "", created.GetName()) })
			}
			return false, nil, nil
		})
		w.run(t)
		time.Sleep(time.Hour)
		testutil.Check(t, "requests while both agree", []string(nil), w.requests())

		w.Source.Set(a.bundle(t, "BA"))
		time.Sleep(2 * time.Second)
		testutil.Check(t, "requests at first", []string{"create BA", "create BA"}, w.requests())
		_, err := w.Check()
		testutil.Must(t, err) // to delete it once is anybody's right
		time.Sleep(time.Minute)
		testutil.Check(t, "requests in a minute: after 3, 7, 15 and 31 seconds", slices.Repeat([]string{"create BA"}, 4), w.requests())
		const attempts = 60
		time.Sleep(time.Hour)
		testutil.Check(t, "requests in an hour", slices.Repeat([]string{"create BA"}, attempts), w.requests())
		w.checkCounts()
		_, err = w.Check()
		const problem = "another client keeps deleting the ClusterTrustBundle BA, which is created again less and less often, " +
			"up to once a minute: if that is kube-controller-manager, take the controller away from it with sa-controller-manager " +
			"kubeadm takeover"
		testutil.Check(t, "readiness", problem, w.named(fmt.Sprint(err)))
		testutil.Check(t, "Events", []string{"BA: Warning SecondTrustBundlePublisher: " + problem}, slices.Compact(w.events()))
		testutil.Check(t, "replaced", map[string]float64{"clustertrustbundles": attempts + 6},
			w.Series(t, "sacm_root_ca_replaced_by_others_total"))

		kcm.Store(false) // a takeover
		time.Sleep(retryInterval + createdCheck)
		testutil.Check(t, "requests after the takeover", []string{"create BA", "delete A [uid-A 7]"}, w.requests())
		testutil.Check(t, "bundles", []string{"BA=BA"}, w.live())
		testutil.Get(w.Check())(t)
		w.checkCounts()
	})
}

// TestTrustBundleWithoutAPI: kube-apiserver before 1.37, which is upgraded then.
func TestTrustBundleWithoutAPI(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		a := newAuthorities(t, "AB")
		w := prepareTrust(t, a, a.bundle(t, "A"))
		var served atomic.Bool
		w.Client.PrependReactor("list", "clustertrustbundles", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !served.Load(), nil, controllertest.NotFound("")
		})
		w.run(t)
		w.Client.ClearActions()
		time.Sleep(10 * time.Minute)
		w.Source.Set(a.bundle(t, "B"))
		synctest.Wait()
		asked := map[string]int{}
		for _, action := range w.Client.Actions() {
			asked[action.GetVerb()]++
		}
		testutil.Check(t, "requests in ten minutes", map[string]int{"list": 10}, asked)
		served.Store(true)
		time.Sleep(retryInterval)
		testutil.Check(t, "bundles once it is served", []string{"B=B"}, w.live())
		testutil.Check(t, "Events", []string(nil), w.events())
	})
}

func TestTrustBundleRefused(t *testing.T) {
	t.Parallel()
	invalid := apierrors.NewInvalid(schema.GroupKind{Group: "certificates.k8s.io", Kind: "ClusterTrustBundle"}, "x", nil)
	for name, tc := range map[string]struct {
		err    error
		events []string
	}{
		"Forbidden": {controllertest.Forbidden("clustertrustbundles"), []string{
			`B: Warning TrustBundleRefused: clustertrustbundles is forbidden: no`,
		}},
		"Invalid":      {invalid, []string{`B: Warning TrustBundleRefused: ClusterTrustBundle.certificates.k8s.io "x" is invalid`}},
		"AlreadyThere": {controllertest.AlreadyExists("clustertrustbundles"), nil},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			a := newAuthorities(t, "AB")
			w := prepareTrust(t, a, a.bundle(t, "B"), a.bundleOf("sa-controller-manager", "A", 1))
			w.FailNext("create", "clustertrustbundles", tc.err)
			w.run(t)
			testutil.Check(t, "Events", tc.events, w.events())
			testutil.Check(t, "requests", []string{"create B"}, w.requests())
			testutil.Check(t, "the previous bundle", []string{"A=A"}, w.live())
			time.Sleep(time.Minute)
			testutil.Check(t, "requests after that", []string{"create B", "delete A [uid-A 7]"}, w.requests())
		})
	}
}

// TestTrustBundleUnknown: what is there may hold a root CA that must stay.
func TestTrustBundleUnknown(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		a := newAuthorities(t, "AB")
		w := prepareTrust(t, a, unknown, a.bundleOf("sa-controller-manager", "A", 1))
		w.run(t)
		time.Sleep(time.Hour)
		testutil.Check(t, "requests before", []string(nil), w.requests())
		w.Source.Set(a.bundle(t, "BA"))
		testutil.Check(t, "requests once it is known", []string{"create BA"}, w.requests())
	})
}

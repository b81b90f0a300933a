// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/internal/accounttemplate"
	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

var resource = schema.GroupResource{Resource: "serviceaccounts"}

var active = controllertest.Active

func terminating(name string) *corev1.Namespace {
	return controllertest.NewNamespace(name, corev1.NamespaceTerminating)
}

func account(namespace, name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// world is a cluster with a controller. It lives in a synctest bubble.
type world struct {
	*controllertest.World
	*Controller
	stop func()
}

// newWorld makes a world of objects in which each creation of an account fails with the next of
// failures, while there are any.
func newWorld(t *testing.T, names []string, failures []error, objects ...runtime.Object) *world {
	w := &world{World: controllertest.NewWorld(time.Time{}, objects...)}
	w.FailNext("create", "serviceaccounts", failures...)
	w.Controller = New(Config{Client: w.World.Client, Informers: w.World.Informers, Names: names})
	w.stop = w.Start(t, w.Run)
	return w
}

// writes are the requests since the last call.
func (w *world) writes(t *testing.T) []string {
	t.Helper()
	synctest.Wait()
	made := append([]string{}, w.Actions(t)...)
	slices.Sort(made) // there are several workers
	return made
}

func creates(accounts ...string) []string {
	requests := []string{}
	for _, account := range accounts {
		requests = append(requests, "create serviceaccounts "+account)
	}
	return requests
}

func TestSync(t *testing.T) {
	t.Parallel()
	forbidden := controllertest.Forbidden("serviceaccounts")
	for name, tc := range map[string]struct {
		reason   string
		names    []string // default if there are none
		objects  []runtime.Object
		failures []error
		want     []string
	}{
		"Active":      {objects: []runtime.Object{active("shop")}, want: creates("shop/default")},
		"Terminating": {reason: "nothing can be created there", objects: []runtime.Object{terminating("shop")}, want: creates()},
		"NoPhase": {
			reason: "not Active yet", objects: []runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}},
			want: creates(),
		},
		"Exists": {objects: []runtime.Object{active("shop"), account("shop", "default")}, want: creates()},
		"NoNamespace": {
			reason: "an account outlives its namespace in the cache", objects: []runtime.Object{account("shop", "other")}, want: creates(),
		},
		"Several": {
			names: []string{"default", "builder", "deployer"}, objects: []runtime.Object{active("shop"), account("shop", "builder")},
			want: creates("shop/default", "shop/deployer"),
		},

		"NamespaceTerminating": {
			reason: "a refusal that says so is none", objects: []runtime.Object{active("shop")},
			failures: []error{controllertest.NamespaceTerminating("serviceaccounts")}, want: creates("shop/default"),
		},
		"Forbidden": {
			reason: "a role may be fixed", objects: []runtime.Object{active("shop")},
			failures: []error{forbidden, forbidden}, want: creates("shop/default", "shop/default", "shop/default"),
		},
		"FailureOfOne": {
			reason: "the others are not held up, and not made twice", names: []string{"default", "builder"},
			objects: []runtime.Object{active("shop")}, failures: []error{forbidden, nil, forbidden, nil},
			want: creates("shop/builder", "shop/default", "shop/default", "shop/default"),
		},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			if tc.names == nil {
				tc.names = []string{"default"}
			}
			w := newWorld(t, tc.names, tc.failures, tc.objects...)
			time.Sleep(requeueAfter - time.Second) // more than the back-off of every case together
			w.stop()
			testutil.Check(t, tc.reason+": requests", tc.want, w.writes(t))
		})
	}
}

// A user deletes the account while the watch is interrupted, which shows neither then.
func TestAnAccountThatIsNeverShown(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		answer error
		after  time.Duration
	}{"Created": {nil, requeueAfter}, "AlreadyExists": {controllertest.AlreadyExists("serviceaccounts"), uncachedRecheck}} {
		testutil.Bubble(t, name, func(t *testing.T) {
			w := newWorld(t, []string{"default"}, nil)
			shown := false
			w.World.Client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
				if shown {
					return false, nil, nil
				}
				shown = true // from now on
				return true, account("shop", "default"), tc.answer
			})
			w.Live(t, active("shop"))
			time.Sleep(tc.after - time.Second)
			testutil.Check(t, "requests at first", creates("shop/default"), w.writes(t))
			time.Sleep(time.Second)
			testutil.Check(t, "requests after a while", creates("shop/default"), w.writes(t))
			time.Sleep(time.Hour)
			testutil.Check(t, "requests once it is shown", creates(), w.writes(t))
		})
	}
}

// TestEnsure: with a template, the labels of the namespace are the live ones, because the cache of Namespaces has none.
func TestEnsure(t *testing.T) {
	t.Parallel()
	template, err := accounttemplate.Parse([]byte(`{schemaVersion: 1, rules: [
		{automountServiceAccountToken: false, labels: {a: b}, annotations: {c: d}},
		{accounts: [default], namespaceSelector: {matchLabels: {team: shop}}, imagePullSecrets: [{name: registry}]}]}`))
	testutil.Must(t, err)
	labelled := active("shop")
	labelled.Labels = map[string]string{"team": "shop"}
	templated := account("shop", "builder")
	templated.AutomountServiceAccountToken = new(false)
	templated.Labels, templated.Annotations = map[string]string{"a": "b"}, map[string]string{"c": "d"}
	selected := templated.DeepCopy()
	selected.Name, selected.ImagePullSecrets = "default", []corev1.LocalObjectReference{{Name: "registry"}}
	boom := apierrors.NewGenericServerResponse(http.StatusInternalServerError, "create", resource, "default", "boom", 0, true)
	forbidden := controllertest.Forbidden("namespaces")
	asked := []string{"get namespaces shop"}
	for name, tc := range map[string]struct {
		reason   string
		template *accounttemplate.Template
		name     string // default if empty
		gone     bool   // there is no namespace
		unread   error  // why the namespace cannot be read
		answer   error  // to the creation
		want     *corev1.ServiceAccount
		requests []string
		err      string
	}{
		"Created":              {want: account("shop", "default"), requests: creates("shop/default")},
		"AlreadyExists":        {answer: controllertest.AlreadyExists("serviceaccounts"), requests: creates("shop/default")},
		"NotFound":             {answer: controllertest.NotFound("serviceaccounts"), requests: creates("shop/default")},
		"NamespaceTerminating": {answer: controllertest.NamespaceTerminating("serviceaccounts"), requests: creates("shop/default")},
		"Refused": {
			reason: "names the account once", answer: boom, requests: creates("shop/default"),
			err: "create service account shop/default: " + boom.Error(),
		},
		"Selected": {template: template, want: selected, requests: append(asked, creates("shop/default")...)},
		"NoSelector": {
			reason: "nothing to ask for", template: template, name: "builder", want: templated, requests: creates("shop/builder"),
		},
		"Gone":      {reason: "nothing can be created there", template: template, gone: true, requests: asked},
		"Forbidden": {reason: "never without its fields", template: template, unread: forbidden, requests: asked, err: forbidden.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := controllertest.NewWorld(time.Time{})
			if !tc.gone {
				testutil.Must(t, w.Client.Tracker().Add(labelled))
			}
			w.FailNext("get", "namespaces", tc.unread)
			w.FailNext("create", "serviceaccounts", tc.answer)
			config := Config{Client: w.Client, Informers: w.Informers}
			if tc.template != nil {
				config.Template = func() *accounttemplate.Template { return tc.template }
			}
			c := New(config)
			controllertest.EndQueues(t, func(ctx context.Context) error { c.queue.Run(ctx); return nil })
			name := cmp.Or(tc.name, "default")
			created, err := c.Ensure(t.Context(), "shop", name)
			testutil.Check(t, tc.reason+": created", tc.want != nil, created)
			testutil.CheckError(t, tc.reason, tc.err, err)
			answered := cmp.Or(tc.answer, tc.unread)
			testutil.Expect(t, tc.err == "" || errors.Is(err, answered), "callers cannot tell what the apiserver answered: %v", err)
			testutil.Check(t, tc.reason+": requests", tc.requests, w.Actions(t))
			if created {
				made := testutil.Get(w.Client.CoreV1().ServiceAccounts("shop").Get(t.Context(), name, metav1.GetOptions{}))(t)
				made.TypeMeta, made.ManagedFields = metav1.TypeMeta{}, nil
				testutil.Check(t, tc.reason, tc.want, made)
			}
		})
	}
}

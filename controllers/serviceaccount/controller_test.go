// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

var resource = schema.GroupResource{Resource: "serviceaccounts"}

func active(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}}
}

func terminating(name string) *corev1.Namespace {
	namespace := active(name)
	namespace.Status.Phase = corev1.NamespaceTerminating
	return namespace
}

func account(namespace, name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// namespaceTerminating is what the NamespaceLifecycle admission plugin answers.
func namespaceTerminating() error {
	err := apierrors.NewForbidden(resource, "default", errors.New("namespace is being terminated"))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	return err
}

// world is a cluster, and a controller in it that runs. It lives in a synctest bubble.
type world struct {
	client *fake.Clientset
	*Controller
	informers *informers.Informers
	ended     chan error
	stop      func()
}

// newWorld makes a world of objects in which each creation of an account fails with the next of
// failures, while there are any.
func newWorld(ctx context.Context, names []string, failures []error, objects ...runtime.Object) *world {
	client := fake.NewClientset(objects...)
	client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		if len(failures) == 0 {
			return false, nil, nil
		}
		err := failures[0]
		failures = failures[1:]
		return err != nil, nil, err
	})
	w := &world{client: client, informers: informers.New(client, 0), ended: make(chan error, 1)}
	w.Controller = New(Config{Client: client, Informers: w.informers, Names: names})

	watching, unwatch := context.WithCancel(ctx)
	working, cancel := context.WithCancel(ctx)
	w.informers.Start(watching)
	w.informers.Await(watching)
	go func() { w.ended <- w.Run(working) }()
	// Between a list and the watch after it the fake API loses what changes.
	synctest.Wait()
	w.stop = func() {
		cancel()
		w.ended <- <-w.ended // wait for it and leave it there
		unwatch()
		w.informers.Stop()
	}
	return w
}

// writes are the requests that may have changed something.
func (w *world) writes() []string {
	synctest.Wait()
	made := []string{}
	for _, action := range w.client.Actions() {
		if action.Matches("list", action.GetResource().Resource) || action.Matches("watch", action.GetResource().Resource) {
			continue
		}
		what := action.GetVerb() + " " + action.GetResource().Resource
		if create, ok := action.(clienttesting.CreateActionImpl); ok {
			object := create.GetObject().(metav1.Object)
			what = fmt.Sprintf("%s %s/%s as %s", what, create.GetNamespace(), object.GetName(), create.GetCreateOptions().FieldManager)
		}
		made = append(made, what)
	}
	slices.Sort(made) // there are several workers
	return made
}

func creates(accounts ...string) []string {
	requests := []string{}
	for _, account := range accounts {
		requests = append(requests, "create serviceaccounts "+account+" as sa-controller-manager")
	}
	return requests
}

func TestSync(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(resource, "default", errors.New("no"))
	timeout := apierrors.NewServerTimeout(resource, "create", 1)
	cases := map[string]struct {
		reason   string
		names    []string // default if there are none
		objects  []runtime.Object
		failures []error
		want     []string
	}{
		"Active":      {objects: []runtime.Object{active("shop")}, want: creates("shop/default")},
		"Terminating": {reason: "nothing can be created there", objects: []runtime.Object{terminating("shop")}, want: creates()},
		"NoPhase":     {reason: "not Active yet", objects: []runtime.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}, want: creates()},
		"Exists":      {objects: []runtime.Object{active("shop"), account("shop", "default")}, want: creates()},
		"ExistsElsewhere": {
			objects: []runtime.Object{active("shop"), active("bank"), account("bank", "default")}, want: creates("shop/default"),
		},
		"NoNamespace": {reason: "an account outlives its namespace in the cache", objects: []runtime.Object{account("shop", "other")}, want: creates()},
		"Several":     {names: []string{"default", "builder", "deployer"}, objects: []runtime.Object{active("shop"), account("shop", "builder")}, want: creates("shop/default", "shop/deployer")},
		"ManyNamespaces": {
			objects: []runtime.Object{active("default"), active("kube-system"), terminating("old"), active("shop")},
			want:    creates("default/default", "kube-system/default", "shop/default"),
		},

		"AlreadyExists": {
			reason: "another replica was faster", objects: []runtime.Object{active("shop")},
			failures: []error{apierrors.NewAlreadyExists(resource, "default")}, want: creates("shop/default"),
		},
		"NamespaceGone": {
			reason: "nothing is owed there", objects: []runtime.Object{active("shop")},
			failures: []error{apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "shop")}, want: creates("shop/default"),
		},
		"NamespaceTerminating": {
			reason: "a refusal that says so is none", objects: []runtime.Object{active("shop")},
			failures: []error{namespaceTerminating()}, want: creates("shop/default"),
		},
		"Forbidden": {
			reason: "a role may be fixed", objects: []runtime.Object{active("shop")},
			failures: []error{forbidden, forbidden}, want: creates("shop/default", "shop/default", "shop/default"),
		},
		"ServerTimeout": {objects: []runtime.Object{active("shop")}, failures: []error{timeout}, want: creates("shop/default", "shop/default")},
		"FailureOfOne": {
			reason: "the others are not held up, and not made twice",
			names:  []string{"default", "builder"}, objects: []runtime.Object{active("shop")},
			failures: []error{forbidden, nil, forbidden, nil},
			want:     creates("shop/builder", "shop/default", "shop/default", "shop/default"),
		},
		"AlreadyExistsForOne": {
			names: []string{"default", "builder"}, objects: []runtime.Object{active("shop")},
			failures: []error{apierrors.NewAlreadyExists(resource, "default")}, want: creates("shop/builder", "shop/default"),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				if tc.names == nil {
					tc.names = []string{"default"}
				}
				w := newWorld(t.Context(), tc.names, tc.failures, tc.objects...)
				time.Sleep(requeueAfter - time.Second) // more than the back-off of every case together
				w.stop()
				if diff := cmp.Diff(tc.want, w.writes()); diff != "" {
					t.Errorf("%s: requests (-want +got):\n%s", tc.reason, diff)
				}
				if err := <-w.ended; err != nil {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}

func TestAccountsComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t.Context(), []string{"default"}, nil, active("shop"), account("shop", "default"), account("shop", "other"))
		api := w.client.CoreV1()
		forget := func(when string, want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, w.writes()); diff != "" {
				t.Errorf("%s: requests (-want +got):\n%s", when, diff)
			}
			w.client.ClearActions()
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}

		must(api.ServiceAccounts("shop").Delete(t.Context(), "default", metav1.DeleteOptions{}))
		forget("account deleted", "create serviceaccounts shop/default as sa-controller-manager", "delete serviceaccounts")
		must(api.ServiceAccounts("shop").Delete(t.Context(), "other", metav1.DeleteOptions{}))
		forget("somebody's account deleted", "delete serviceaccounts")

		_, err := api.Namespaces().Create(t.Context(), active("bank"), metav1.CreateOptions{})
		must(err)
		forget("namespace created", "create namespaces /bank as ", "create serviceaccounts bank/default as sa-controller-manager")

		_, err = api.Namespaces().Update(t.Context(), terminating("bank"), metav1.UpdateOptions{})
		must(err)
		must(api.ServiceAccounts("bank").Delete(t.Context(), "default", metav1.DeleteOptions{}))
		forget("namespace on its way out", "delete serviceaccounts", "update namespaces")

		w.stop()
		must(api.ServiceAccounts("shop").Delete(t.Context(), "default", metav1.DeleteOptions{}))
		forget("after the end", "delete serviceaccounts")
	})
}

// Somebody deletes the account while the watch is interrupted, which shows neither then.
func TestAnAccountThatIsNeverShown(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		answer error
		after  time.Duration
	}{
		"Created":       {nil, requeueAfter},
		"AlreadyExists": {apierrors.NewAlreadyExists(resource, "default"), uncachedRecheck},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t.Context(), []string{"default"}, nil)
				defer w.stop()
				shown := false
				w.client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
					if shown {
						return false, nil, nil
					}
					shown = true // from now on
					return true, account("shop", "default"), tc.answer
				})
				expect := func(when string, want []string) {
					t.Helper()
					if diff := cmp.Diff(want, w.writes()); diff != "" {
						t.Errorf("requests %s (-want +got):\n%s", when, diff)
					}
				}
				if err := w.client.Tracker().Add(active("shop")); err != nil {
					t.Fatal(err)
				}
				time.Sleep(tc.after - time.Second)
				expect("at first", creates("shop/default"))
				time.Sleep(time.Second)
				expect("after a while", creates("shop/default", "shop/default"))
				time.Sleep(time.Hour)
				expect("once it is shown", creates("shop/default", "shop/default"))
			})
		})
	}
}

// To look whether an account is shown is no reason to try more often to create it.
func TestRefusalsGrowRare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		forbidden := apierrors.NewForbidden(resource, "default", errors.New("no"))
		w := newWorld(t.Context(), []string{"default"}, slices.Repeat([]error{forbidden}, 1000), active("shop"))
		time.Sleep(time.Hour)
		w.stop()
		if n := len(w.writes()); n < 60 || n > 80 {
			t.Errorf("%d tries in an hour, want about one a minute", n)
		}
	})
}

func TestRunNeedsALivingView(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t.Context(), []string{"default"}, nil)
		w.stop()
		if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "watch namespaces: ") {
			t.Errorf("Run on informers that have ended returned %v, want an error that says what could not be watched", err)
		}
	})
}

func TestEnsure(t *testing.T) {
	t.Parallel()
	boom := apierrors.NewGenericServerResponse(http.StatusInternalServerError, "create", resource, "default", "boom", 0, true)
	cases := map[string]struct {
		reason string
		answer error
		want   string
	}{
		"Created":              {},
		"AlreadyExists":        {answer: apierrors.NewAlreadyExists(resource, "default")},
		"NotFound":             {answer: apierrors.NewNotFound(resource, "default")},
		"NamespaceTerminating": {answer: namespaceTerminating()},
		"Other":                {reason: "names the account once", answer: boom, want: "create service account shop/default: " + boom.Error()},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset()
			var sent *corev1.ServiceAccount
			client.PrependReactor("create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
				sent = action.(clienttesting.CreateAction).GetObject().(*corev1.ServiceAccount)
				return tc.answer != nil, nil, tc.answer
			})
			c := New(Config{Client: client, Informers: informers.New(client, 0)})
			t.Cleanup(func() { c.queue.Run(t.Context()) }) // the context has ended by then, so this ends the queue
			created, err := c.Ensure(t.Context(), "shop", "default")
			if created != (tc.answer == nil) {
				t.Errorf("created is %t after the answer %v", created, tc.answer)
			}
			if got := fmt.Sprint(err); tc.want != "" && got != tc.want || tc.want == "" && err != nil {
				t.Errorf("%s: got error %v, want %q", tc.reason, err, tc.want)
			}
			if tc.want != "" && !errors.Is(err, tc.answer) {
				t.Errorf("callers cannot tell what the apiserver answered: %v", err)
			}
			if diff := cmp.Diff(account("shop", "default"), sent, cmpopts.IgnoreTypes(metav1.TypeMeta{})); diff != "" {
				t.Errorf("sent (-want +got):\n%s", diff)
			}
		})
	}
}

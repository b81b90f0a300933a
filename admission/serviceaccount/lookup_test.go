// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"

	"sa-controller-manager/admission"
	"sa-controller-manager/internal/testutil"
)

// Pods without containers: there is only an account to find.
const (
	defaultPod = `{"metadata": {"name": "web"}, "spec": {}}`
	otherPod   = `{"metadata": {"name": "web"}, "spec": {"serviceAccountName": "web"}}`

	missing = `pods "web" is forbidden: error looking up service account shop/default: serviceaccount "default" not found`
)

// TestLookup: what is done for an account that the cache does not have, and how long it
// takes. Time is a bubble's.
func TestLookup(t *testing.T) {
	t.Parallel()
	type want struct {
		code          int32
		message       string
		after         time.Duration
		gets, ensured int32
		annotate      string
	}
	const (
		broken      = "Internal error occurred: error looking up service account shop/default: boom"
		keptAway    = ", because it cannot be created: "
		webMissing  = `pods "web" is forbidden: error looking up service account shop/web: serviceaccount "web" not found`
		webBroken   = "Internal error occurred: error looking up service account shop/web: boom"
		webDeadline = "Internal error occurred: error looking up service account shop/web: context deadline exceeded"
	)
	fails := func(context.Context, string, string) (bool, error) { return false, errBoom }
	refusesWith := func(err error) func(context.Context, string, string) (bool, error) {
		return func(context.Context, string, string) (bool, error) { return false, err }
	}
	createsNothing := func(context.Context, string, string) (bool, error) { return false, nil }
	for name, tc := range map[string]struct {
		reason string
		pod    string // defaultPod if empty
		// The account named is in the cache, or only at the apiserver.
		cached, stored string
		creates        bool
		ensure         func(ctx context.Context, namespace, name string) (bool, error)
		apiErr         error
		silent         bool // the apiserver does not answer
		// call is Admit if nil.
		call func(*Plugin, context.Context, *admission.Request, *admission.Response) error
		// during runs beside the call.
		during         func(*world)
		deadline       time.Duration
		dryRun, noWait bool
		want           want
	}{
		"Cached": {reason: "the cache is all it takes", cached: "default", creates: true},
		"Created": {
			reason: "the default account is created at once where accounts are created", creates: true,
			want: want{gets: 1, ensured: 1, annotate: "shop/default"},
		},
		"NotCreatedForDryRun": {
			reason: "a dry run leaves nothing behind, and does not wait", creates: true, dryRun: true,
			want: want{code: 403, message: missing, gets: 1},
		},
		"NotAwaitedByALargeOne": {reason: "it would keep others out", noWait: true, want: want{code: 403, message: missing, gets: 1}},
		"CreatedByALargeOne": {
			reason: "that is no waiting", noWait: true, creates: true, want: want{gets: 1, ensured: 1, annotate: "shop/default"},
		},
		"QuotaExhausted": {
			reason: "the user's own quota or policy, as in kube-apiserver", ensure: refusesWith(apierrors.NewForbidden(
				corev1.Resource("serviceaccounts"), "default", errors.New("exceeded quota: q"))),
			want: want{code: 403, gets: 1, message: missing + keptAway + `serviceaccounts "default" is forbidden: exceeded quota: q`},
		},
		"PolicyInvalid": {
			reason: "a policy chooses its code",
			ensure: refusesWith(apierrors.NewInvalid(schema.GroupKind{Kind: "ServiceAccount"}, "default", nil)),
			want:   want{code: 403, gets: 1, message: missing + keptAway + `ServiceAccount "default" is invalid`},
		},
		"Slash": {
			reason: "client-go does not even ask", pod: `{"metadata": {"name": "web"}, "spec": {"serviceAccountName": "a/b"}}`,
			apiErr: errBoom, want: want{code: 403, gets: 1,
				message: `pods "web" is forbidden: error looking up service account shop/a/b: boom`},
		},
		"ApiserverOverloaded": {
			reason: "it fails, and not the Pod", pod: otherPod, apiErr: apierrors.NewTooManyRequests("slow down", 1),
			want: want{code: 500, gets: 1, message: "Internal error occurred: error looking up service account shop/web: slow down"},
		},
		"CreateRefused": {
			reason: "the API answers that the account is missing, and what keeps it away is no failure of the webhook", ensure: fails,
			want: want{code: 403, message: missing + keptAway + "boom", gets: 1},
		},
		"WebhookOfOthersFails": {
			reason: "kube-apiserver's own plugin says 403, too", ensure: refusesWith(apierrors.NewInternalError(
				errors.New(`failed calling webhook "accounts.example.com": connection refused`))),
			want: want{code: 403, gets: 1, message: missing + keptAway +
				`Internal error occurred: failed calling webhook "accounts.example.com": connection refused`},
		},
		"CreateRefusedButThere": {reason: "another process has created it", ensure: fails, stored: "default", want: want{gets: 1}},
		"AlreadyThere": {
			reason: "the cache was stale: nothing was created, and the audit log does not say so",
			ensure: createsNothing, stored: "default", want: want{gets: 1},
		},
		"CreatedAndUnknown": {
			reason: "the audit annotation says what was done, even in vain", creates: true, apiErr: errBoom,
			want: want{code: 500, message: broken, gets: 1, ensured: 1, annotate: "shop/default"},
		},
		"NamespaceTerminating": {
			reason: "nothing is owed to a namespace that goes, so there is nothing to wait for", ensure: createsNothing,
			want: want{code: 403, message: missing, gets: 1},
		},
		"Live": {reason: "the cache is stale", pod: otherPod, creates: true, stored: "web", want: want{gets: 1}},
		"OtherMissing": {
			reason: "an account that nobody owes is looked up once and neither created nor waited for", pod: otherPod, creates: true,
			want: want{code: 403, message: webMissing, gets: 1},
		},
		"Awaited": {
			reason: "where this process creates no accounts, another one does", during: func(w *world) {
				<-time.After(time.Second)
				w.show(account(testNamespace, "other"))
				w.show(account("elsewhere", "default"))
				<-time.After(time.Second)
				w.show(account(testNamespace, "default"))
			},
			want: want{gets: 1, after: 2 * time.Second},
		},
		"AwaitedInVain": {reason: "waiting has an end", want: want{code: 403, message: missing, gets: 1, after: accountTimeout}},
		"AwaitedUntilDeadline": {
			reason: "the request has an end too", deadline: time.Second,
			want: want{code: 403, message: missing, gets: 1, after: time.Second},
		},
		"ValidateDoesNotWait": {
			reason: "Admit has waited already", pod: `{"metadata": {"name": "web"}, "spec": {"serviceAccountName": "default"}}`,
			creates: true, call: (*Plugin).Validate, want: want{code: 403, message: missing, gets: 1},
		},
		"ApiserverBroken": {
			reason: "that is not the Pod's fault", pod: otherPod, apiErr: errBoom, want: want{code: 500, message: webBroken, gets: 1},
		},
		"ApiserverSilent": {
			reason: "the request's deadline bounds the request to the apiserver", pod: otherPod, silent: true, deadline: 4 * time.Second,
			want: want{code: 500, message: webDeadline, gets: 1, after: 4 * time.Second},
		},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			w := newWorld()
			w.ensure, w.err = tc.ensure, tc.apiErr
			if tc.creates {
				w.creates()
			}
			if tc.cached != "" {
				w.show(account(testNamespace, tc.cached))
			}
			if tc.stored != "" {
				_ = w.server.Add(account(testNamespace, tc.stored))
			}
			if tc.silent {
				w.requests = make(chan struct{})
			}
			request := creation([]byte(cmp.Or(tc.pod, defaultPod)))
			request.DryRun, request.NoWait = tc.dryRun, tc.dryRun || tc.noWait
			ctx := t.Context()
			if tc.deadline > 0 {
				deadlined, cancel := context.WithTimeout(ctx, tc.deadline)
				defer cancel()
				ctx = deadlined
			}
			if tc.during != nil {
				go tc.during(w)
			}
			if tc.call == nil {
				tc.call = (*Plugin).Admit
			}
			start, response := time.Now(), &admission.Response{}
			code, message := codeAndMessage(tc.call(w.plugin(DefaultConfig()), ctx, request, response))
			got := want{
				code: code, message: message, after: time.Since(start), gets: w.gets.Load(), ensured: w.ensured.Load(),
				annotate: response.AuditAnnotations[auditCreated],
			}
			testutil.Expect(t, got == tc.want, "%s\n got %+v\nwant %+v", tc.reason, got, tc.want)
			w.mustBeEmpty(t)
		})
	}
}

// TestTooManyWaiters: waiters of one namespace leave room for others, one more is rejected with
// 429, and there is room again later.
func TestTooManyWaiters(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		w := newWorld()
		plugin := w.plugin(DefaultConfig())
		admit := func(namespace string) error {
			request := creation([]byte(defaultPod))
			request.Namespace = namespace
			return plugin.Admit(t.Context(), request, &admission.Response{})
		}
		refused := func(namespace string) {
			t.Helper()
			code, message := codeAndMessage(admit(namespace))
			testutil.Check(t, message, int32(429), code)
			testutil.Check(t, "message", errTooManyWaiters.Error(), message)
		}
		namespaces, share := []string{"a", "b", "c", "d"}, mostWaiters/4
		admitted := make(chan error, mostWaiters)
		for _, namespace := range namespaces {
			for range share {
				go func() { admitted <- admit(namespace) }()
			}
			synctest.Wait()
			refused(namespace)
		}
		refused("e")
		for _, namespace := range namespaces {
			w.show(account(namespace, defaultAccount))
		}
		for range mostWaiters {
			testutil.CheckError(t, "a waiter was refused", "", <-admitted)
		}
		testutil.CheckError(t, "refused after all waiters have left", "", admit("a"))
		w.mustBeEmpty(t)
	})
}

// TestTokenAwaited: in mode secret the Pod waits until its account lists a usable token.
func TestTokenAwaited(t *testing.T) {
	t.Parallel()
	config := DefaultConfig()
	config.Mode = Secret
	config.LimitSecretReferences = true // only the newest state of the account allows the token
	object := []byte(`{"metadata": {"name": "web"}, "spec": {"containers": [{"name": "a"}]}}`)
	listing := account(testNamespace, defaultAccount)
	listing.Secrets = []corev1.ObjectReference{{Name: "token"}}

	synctest.Test(t, func(t *testing.T) {
		w := newWorld().creates()
		admitted := make(chan error, 1)
		response := &admission.Response{}
		go func() { admitted <- w.plugin(config).Admit(t.Context(), creation(object), response) }()
		synctest.Wait()
		w.show(account(testNamespace, defaultAccount))
		synctest.Wait()
		w.show(listing)
		synctest.Wait()
		select {
		case err := <-admitted:
			t.Fatalf("admitted before the Secret was usable: %v", err)
		default:
		}
		w.tokens["token"] = true
		w.show(listing)
		testutil.CheckError(t, "refused", "", <-admitted)
		testutil.Check(t, "operations", 4, len(response.Patch))
		w.mustBeEmpty(t)
	})
	synctest.Test(t, func(t *testing.T) {
		request := creation(object)
		request.NoWait = true
		start := time.Now()
		err := newWorld(listing).plugin(config).Admit(t.Context(), request, &admission.Response{})
		_, retry := apierrors.SuggestsClientDelay(err)
		testutil.Expect(t, retry && time.Since(start) <= 0, "a large one: got %v after %s, want a retry at once", err, time.Since(start))
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(listing)
		start := time.Now()
		err := w.plugin(config).Admit(t.Context(), creation(object), &admission.Response{})
		seconds, retry := apierrors.SuggestsClientDelay(err)
		if waited := time.Since(start); !retry || seconds == 0 || waited != tokenTimeout {
			t.Errorf("got %v after %s, want after %s a refusal that asks for a retry", err, waited, tokenTimeout)
		}
		w.mustBeEmpty(t)
	})
}

// mustBeEmpty checks that nobody waits any more and nothing is left of those who did.
func (w *world) mustBeEmpty(t *testing.T) {
	t.Helper()
	w.waiters.mu.Lock()
	defer w.waiters.mu.Unlock()
	testutil.Expect(t, w.waiters.entered == 0 && len(w.waiters.inside) == 0 && len(w.waiters.waiting) == 0,
		"%d requests entered and did not leave, %d waiters remain", w.waiters.entered, len(w.waiters.waiting))
}

// mostWaiters is what the Waiters of these tests let in.
const mostWaiters = 16

// TestNoWakeIsLost: a change that comes between the check and the wait is noticed.
func TestNoWakeIsLost(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		name := cache.NewObjectName(testNamespace, defaultAccount)
		w := NewWaiters(mostWaiters, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		calls := 0
		found := w.await(ctx, name, func() bool {
			calls++
			w.Wake(name) // what it looks at changes just now
			return calls == 3
		})
		testutil.Expect(t, found && calls == 3, "found: %t after %d calls", found, calls)
	})
}

// TestFollow runs a real informer, whose events wake the waiters of the account.
func TestFollow(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		source := cachetesting.NewFakeControllerSource()
		t.Cleanup(source.Shutdown)
		informer := cache.NewSharedIndexInformer(source, &corev1.ServiceAccount{}, 0, nil)
		w := NewWaiters(mostWaiters, nil)
		testutil.Must(t, w.Follow(informer, AccountItself))
		testutil.Start(t, func(ctx context.Context) error { informer.RunWithContext(ctx); return nil })
		checks := 0
		go w.await(t.Context(), cache.NewObjectName(testNamespace, defaultAccount), func() bool { checks++; return false })
		synctest.Wait()
		for _, change := range []func(runtime.Object){source.Add, source.Modify} {
			change(account("elsewhere", defaultAccount))
			change(account(testNamespace, defaultAccount))
			synctest.Wait()
		}
		testutil.Check(t, "checks, one at first and one for each change", 3, checks)
	})
}

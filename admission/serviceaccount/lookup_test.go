// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/admission"
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
		code     int32
		message  string
		after    time.Duration
		gets     int32
		ensured  int32
		annotate string
	}
	cases := map[string]struct {
		reason string
		pod    string
		world  func() *world
		// call is Admit if nil.
		call func(*Plugin, context.Context, *admission.Request, *admission.Response) error
		// during runs beside the call.
		during   func(*world)
		deadline time.Duration
		dryRun   bool
		want     want
	}{
		"Cached": {
			reason: "the cache is all it takes",
			pod:    defaultPod, world: func() *world { return newWorld(account(testNamespace, "default")).creates() },
		},
		"Created": {
			reason: "the default account is created at once where accounts are created",
			pod:    defaultPod, world: func() *world { return newWorld().creates() },
			want: want{gets: 1, ensured: 1, annotate: "shop/default"},
		},
		"NotCreatedForDryRun": {
			reason: "a dry run leaves nothing behind",
			pod:    defaultPod, world: func() *world { return newWorld().creates() }, dryRun: true,
			want: want{code: 403, message: missing, gets: 1, after: accountTimeout},
		},
		"CreateRefused": {
			reason: "what keeps the account from being created is the reason of the refusal",
			pod:    defaultPod,
			world: func() *world {
				w := newWorld()
				w.ensure = func(context.Context, string, string) (bool, error) { return false, errBoom }
				return w
			},
			want: want{code: 500, message: "Internal error occurred: error looking up service account shop/default: boom", gets: 1},
		},
		"CreateRefusedButThere": {
			reason: "somebody else has created it",
			pod:    defaultPod,
			world: func() *world {
				w := newWorld()
				w.ensure = func(context.Context, string, string) (bool, error) { return false, errBoom }
				_ = w.server.Add(account(testNamespace, "default"))
				return w
			},
			want: want{gets: 1},
		},
		"AlreadyThere": {
			reason: "the cache was behind: nothing was created, and the audit log does not say so",
			pod:    defaultPod,
			world: func() *world {
				w := newWorld(account(testNamespace, "default")).creates()
				_ = w.cache.Delete(account(testNamespace, "default"))
				w.ensure = func(context.Context, string, string) (bool, error) { return false, nil }
				return w
			},
			want: want{gets: 1},
		},
		"CreatedAndUnknown": {
			reason: "the audit annotation says what was done, even in vain",
			pod:    defaultPod,
			world: func() *world {
				w := newWorld().creates()
				w.err = errBoom
				return w
			},
			want: want{code: 500, message: "Internal error occurred: error looking up service account shop/default: boom", gets: 1, ensured: 1, annotate: "shop/default"},
		},
		"NamespaceTerminating": {
			reason: "nothing is owed to a namespace that goes, so there is nothing to wait for",
			pod:    defaultPod,
			world: func() *world {
				w := newWorld()
				w.ensure = func(context.Context, string, string) (bool, error) { return false, nil }
				return w
			},
			want: want{code: 403, message: missing, gets: 1},
		},
		"Live": {
			reason: "the cache is behind",
			pod:    otherPod,
			world: func() *world {
				w := newWorld().creates()
				_ = w.server.Add(account(testNamespace, "web"))
				return w
			},
			want: want{gets: 1},
		},
		"OtherMissing": {
			reason: "an account that nobody owes is looked up once and neither created nor waited for",
			pod:    otherPod, world: func() *world { return newWorld().creates() },
			want: want{
				code: 403, gets: 1,
				message: `pods "web" is forbidden: error looking up service account shop/web: serviceaccount "web" not found`,
			},
		},
		"Awaited": {
			reason: "where nobody here creates accounts, somebody else does",
			pod:    defaultPod, world: func() *world { return newWorld() },
			during: func(w *world) {
				<-time.After(time.Second)
				w.show(account(testNamespace, "other"))
				w.show(account("elsewhere", "default"))
				<-time.After(time.Second)
				w.show(account(testNamespace, "default"))
			},
			want: want{gets: 1, after: 2 * time.Second},
		},
		"AwaitedInVain": {
			reason: "waiting has an end",
			pod:    defaultPod, world: func() *world { return newWorld() },
			want: want{code: 403, message: missing, gets: 1, after: accountTimeout},
		},
		"AwaitedUntilDeadline": {
			reason: "the request has an end too",
			pod:    defaultPod, world: func() *world { return newWorld() }, deadline: time.Second,
			want: want{code: 403, message: missing, gets: 1, after: time.Second},
		},
		"ValidateDoesNotWait": {
			reason: "Admit has waited already",
			pod:    `{"metadata": {"name": "web"}, "spec": {"serviceAccountName": "default"}}`,
			world:  func() *world { return newWorld().creates() }, call: (*Plugin).Validate,
			want: want{code: 403, message: missing, gets: 1},
		},
		"ApiserverBroken": {
			reason: "that is not the Pod's fault",
			pod:    otherPod,
			world: func() *world {
				w := newWorld()
				w.err = errBoom
				return w
			},
			want: want{code: 500, message: "Internal error occurred: error looking up service account shop/web: boom", gets: 1},
		},
		"ApiserverSilent": {
			reason: "the request's deadline bounds the request to the apiserver",
			pod:    otherPod,
			world: func() *world {
				w := newWorld()
				w.requests = make(chan struct{})
				return w
			},
			deadline: 4 * time.Second,
			want: want{
				code: 500, gets: 1, after: 4 * time.Second,
				message: "Internal error occurred: error looking up service account shop/web: context deadline exceeded",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := tc.world()
				request := creation([]byte(tc.pod))
				request.DryRun = tc.dryRun
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
				if got != tc.want {
					t.Errorf("%s\n got %+v\nwant %+v", tc.reason, got, tc.want)
				}
				w.mustBeEmpty(t)
			})
		})
	}
}

// TestTooManyWaiters: waiters of one namespace leave room for others, one more is rejected with
// 429, and there is room again later.
func TestTooManyWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		plugin := w.plugin(DefaultConfig())
		admit := func(namespace string) error {
			request := creation([]byte(defaultPod))
			request.Namespace = namespace
			return plugin.Admit(t.Context(), request, &admission.Response{})
		}
		refused := func(namespace string) {
			t.Helper()
			if code, message := codeAndMessage(admit(namespace)); code != 429 || message != errTooManyWaiters.Error() {
				t.Errorf("got %d %q", code, message)
			}
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
			if err := <-admitted; err != nil {
				t.Errorf("a waiter was refused: %v", err)
			}
		}
		if err := admit("a"); err != nil {
			t.Errorf("refused after all waiters have left: %v", err)
		}
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
		if err := <-admitted; err != nil {
			t.Errorf("refused: %v", err)
		}
		if len(response.Patch) != 4 {
			t.Errorf("patch: %v", response.Patch)
		}
		w.mustBeEmpty(t)
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(listing)
		start := time.Now()
		code, _ := codeAndMessage(w.plugin(config).Admit(t.Context(), creation(object), &admission.Response{}))
		if waited := time.Since(start); code != 500 || waited != tokenTimeout {
			t.Errorf("got %d after %s", code, waited)
		}
		w.mustBeEmpty(t)
	})
}

// mustBeEmpty checks that nobody waits any more and nothing is left of those who did.
func (w *world) mustBeEmpty(t *testing.T) {
	t.Helper()
	w.waiters.mu.Lock()
	defer w.waiters.mu.Unlock()
	if w.waiters.entered != 0 || len(w.waiters.inside) != 0 || len(w.waiters.waiting) != 0 {
		t.Errorf("%d requests entered and did not leave, %d waiters remain", w.waiters.entered, len(w.waiters.waiting))
	}
}

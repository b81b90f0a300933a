// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/testutil"
)

// TestManyReferencesCostFewRequests: a user may list any number of Secrets and change the account every two seconds.
func TestManyReferencesCostFewRequests(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, pattern string
		reads           []string
		listed          bool
	}{
		"MadeUp":          {"no token controller chooses such names", "made-up-%d", nil, false},
		"AsOfControllers": {"one list in ten seconds", "app-token-%05d", []string{"list secrets"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			names := make([]string, 4000)
			for i := range names {
				names[i] = fmt.Sprintf(tc.pattern, i)
			}
			w := newWorld(t, account())
			w.Auto = true
			at := func(version string) {
				w.Cache(t, account(referencing(names...), func(a *corev1.ServiceAccount) { a.ResourceVersion = version }))
			}
			at("10")
			w.Fail("create", "secrets", errors.New("boom"))
			_ = w.syncAccount(t.Context(), named("app"))
			testutil.Check(t, tc.reason, append(tc.reads, createsOwn), w.Actions(t))
			_ = w.syncAccount(t.Context(), named("app"))
			testutil.Check(t, "the same version: it is not read again", []string{strings.TrimSuffix(createsOwn, " token")}, w.Actions(t))
			for second := 2; second < 10; second += 2 {
				w.Clock.Step(2 * time.Second)
				at(fmt.Sprint(10 + second))
				_ = w.syncAccount(t.Context(), named("app"))
				asked := w.Actions(t)
				testutil.Expect(t, (!tc.listed || len(asked) <= 0) && len(asked) <= 1, "after %d s: %q", second, asked)
			}
			w.Clock.Step(2 * time.Second)
			_ = w.syncAccount(t.Context(), named("app"))
			testutil.Check(t, "after ten seconds", append(tc.reads, strings.TrimSuffix(createsOwn, " token")), w.Actions(t))
		})
	}
}

// TestHandlersReadFewReferences: Due runs on the goroutine of an informer's handler.
func TestHandlersReadFewReferences(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Auto = true
	counting := &countingIndexer{Indexer: w.secretInformer.GetIndexer()}
	w.secrets = tokensecrets.ListerOf(counting)
	own := tokenSecret("app-token-bcdfg", filled(t), autoCreated)
	w.Cache(t, own)
	for n, want := range map[int]bool{0: true, 1: false, fewReferences: false, fewReferences + 1: true, 10000: true} {
		var names []string
		if n > 0 {
			names = append(names, own.Name)
		}
		for i := len(names); i < n; i++ {
			names = append(names, fmt.Sprint("opaque-", i))
		}
		counting.reads = 0
		if due := w.accountDue(account(referencing(names...))); due != want || counting.reads > fewReferences {
			t.Errorf("%d references: due %t after %d reads, want %t", n, due, counting.reads, want)
		}
	}
	testutil.Expect(t, w.accountDue(account(listed(meta.FieldManager, own.Name, "gone"))),
		"a reference of a token controller to a Secret that is gone is not due")
}

// countingIndexer counts reads.
type countingIndexer struct {
	cache.Indexer

	reads int
}

func (c *countingIndexer) GetByKey(key string) (any, bool, error) {
	c.reads++
	return c.Indexer.GetByKey(key)
}

func (c *countingIndexer) ByIndex(name, value string) ([]any, error) {
	c.reads += len(c.Indexer.ListKeys())
	return c.Indexer.ByIndex(name, value)
}

// TestAWriteThatChangedNothing: a policy or webhook of others took it out, and kube-apiserver answers 200.
func TestAWriteThatChangedNothing(t *testing.T) {
	t.Parallel()
	ours := tokenSecret("app-token-bcdfg", filled(t), autoCreated)
	for name, tc := range map[string]struct {
		reason  string
		answer  runtime.Object
		account *corev1.ServiceAccount
		secret  *corev1.Secret
		sync    func(*world) error
	}{
		"Fill": {"all of it", tokenSecret("token"), account(), tokenSecret("token"), func(w *world) error {
			return w.syncSecret(t.Context(), named("token"))
		}},
		"FillButTheToken": {
			"another version, without a token", tokenSecret("token", atVersion("21"), boundTo(testUID)), account(), tokenSecret("token"),
			func(w *world) error { return w.syncSecret(t.Context(), named("token")) },
		},
		"Reference": {"no reference", account(), account(), ours, func(w *world) error {
			w.Auto = true
			return w.syncAccount(t.Context(), named("app"))
		}},
		"Dereference": {"the reference is back", account(), account(listed(meta.FieldManager, "gone")), nil, func(w *world) error {
			return w.syncReferences(t.Context(), named("app"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.Cache(t, tc.account)
			if tc.secret != nil {
				w.Cache(t, tc.secret)
			}
			w.Client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, tc.answer, nil })
			for try := range 2 {
				err := tc.sync(w)
				testutil.Expect(t, errors.Is(err, meta.ErrUnchanged), "%s, try %d: error %v, want %v", tc.reason, try, err, meta.ErrUnchanged)
				testutil.CheckContains(t, tc.reason+": requests", "patch", strings.Join(w.Actions(t), ", "))
			}
			testutil.Check(t, tc.reason, []string{"Warning TokenSecretRefused"}, w.Events()[:1])
			for _, series := range []string{"sacm_legacy_tokens_issued_total", "sacm_token_references_removed_total"} {
				counted := w.Series(t, series)
				testutil.Expect(t, len(counted) <= 0, "%s: %s is %v", tc.reason, series, counted)
			}
		})
	}
}

// TestOthersDeleteEachSecret: an account gets one in ten seconds, with an Event and a counter from the third one on.
func TestOthersDeleteEachSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t, account())
	w.Auto = true
	w.Cache(t, account())
	for n := range 4 {
		w.NewSuffix = func() string { return fmt.Sprint("nr-", n, n) }
		secret := tokenSecret(tokensecrets.NewName("app", w.NewSuffix()), filled(t), autoCreated)
		w.syncsAccount(t, "created", strings.ReplaceAll(createsOwn, "bcdfg", w.NewSuffix()),
			strings.ReplaceAll(referencesOwn, "bcdfg", w.NewSuffix()))
		w.Cache(t, secret, account(referencing(secret.Name)))
		w.syncsAccount(t, "there")
		w.Uncache(t, secret)
		w.Cache(t, account())
		w.syncsAccount(t, "deleted at once")
		w.Clock.Step(undonePeriod - time.Second)
		w.syncsAccount(t, "nine seconds later")
		w.Clock.Step(time.Second)
		var want []string
		if n == 2 { // once, as the API combines what is the same
			want = []string{"Warning TokenSecretsDeletedByOthers"}
		}
		testutil.Check(t, fmt.Sprintf("Events after %d creations", n+1), want, w.Events())
	}
	testutil.Check(t, "counter", 2.0, w.Series(t, "sacm_token_secrets_deleted_by_others_total")[""])
}

// TestNoSignatureAfterARefusal: a quota may refuse for days, and a key in an HSM is slow. The Secret is filled once it is there.
func TestNoSignatureAfterARefusal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, account())
	w.Auto = true
	w.Cache(t, account())
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "x", errors.New("exceeded quota: few"))
	w.FailNext("create", "secrets", quota, quota)
	unsigned := strings.TrimSuffix(createsOwn, " token")
	for n, want := range [][]string{{createsOwn}, {unsigned}, {unsigned, referencesOwn}} {
		err := w.syncAccount(t.Context(), named("app"))
		testutil.Check(t, fmt.Sprint("try ", n), want, w.Actions(t))
		refused := err != nil
		testutil.Expect(t, refused == (n < 2) && (!refused || strings.Contains(err.Error(), "exceeded quota: few")), "try %d: error %v", n, err)
	}
	testutil.Check(t, "Events", []string{"Warning TokenSecretRefused"}, w.Events())
	counted := w.Series(t, "sacm_legacy_tokens_issued_total")
	testutil.Expect(t, len(counted) <= 0, "issued: %v", counted)
}

// TestARefusedFill: the users of a Secret read in an Event who refuses the write. The author of a policy may quote what the Secret holds
// besides, which is in no cache.
func TestARefusedFill(t *testing.T) {
	t.Parallel()
	const policy = `secrets "token" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request`
	for said, want := range map[string]string{
		": only the operator may change this Secret": policy + ": only the operator may change this Secret",
		": its password is hunter2":                  policy + "; its audit log has the rest, which may quote the Secret",
	} {
		secret := tokenSecret("token", withData("password", "hunter2"))
		w := newWorld(t, secret)
		w.Cache(t, secret, account())
		refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "token", nil)
		refused.ErrStatus.Message = policy + said
		w.FailNext("patch", "secrets", refused)
		err := w.syncSecret(t.Context(), named("token"))
		testutil.Expect(t, apierrors.IsForbidden(err) && strings.HasSuffix(err.Error(), want), "error %v, want %q", err, want)
		testutil.Check(t, "Events", []string{"token: Warning TokenSecretRefused: populate token secret ns/token: " +
			"kube-apiserver answered 403 Forbidden: " + want}, w.Recorded.Lines())
	}
}

// BenchmarkSyncSecret is what this program adds to a request: one sync of a Secret that
// lacks everything, with a P-256 key and a client that does nothing; and of one that
// lacks nothing, which is what most syncs are.
func BenchmarkSyncSecret(b *testing.B) {
	for name, changes := range map[string][]func(*corev1.Secret){"empty": nil, "filled": {filled(b)}} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b)
			w.Controller.Client = idle{}
			w.Cache(b, account(), tokenSecret("token", changes...))
			key := cache.NewObjectName(testNamespace, "token")
			b.ReportAllocs()
			for b.Loop() {
				w.written.reset() // or the second sync would wait for the watch
				testutil.Must(b, w.syncSecret(b.Context(), key))
			}
		})
	}
}

// idle is a client that does nothing.
type idle struct{ kubernetes.Interface }

func (idle) CoreV1() corev1client.CoreV1Interface { return idleCore{} }

type idleCore struct{ corev1client.CoreV1Interface }

func (idleCore) Secrets(string) corev1client.SecretInterface { return idleSecrets{} }

// idleSecrets takes every patch and does nothing with it.
type idleSecrets struct{ corev1client.SecretInterface }

func (idleSecrets) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*corev1.Secret, error) {
	return &corev1.Secret{}, nil
}

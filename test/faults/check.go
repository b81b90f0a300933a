// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/client-go/util/workqueue"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/test/integration/canary"
	"sa-controller-manager/test/integration/faultproxy"
)

// scope is what is judged: what there must be, in namespaces whose names begin with prefix, and what became of Pods.
type scope struct {
	model  workload.Model
	prefix string
	calls  []workload.Call
	// timeout is how long it may take until all is well, and lasts how long it has to stay so.
	timeout, lasts time.Duration
	// rotated is the ring that an operator has left, nil for that of the cluster's one key, and bound are questions about
	// tokens that are in no Secret.
	rotated *checker.KeyRing
	bound   []question
}

// check awaits that all is as promised, and then looks at everything else that the run has left behind.
func (w *World) check(ctx context.Context, scope scope) (checker.Outcome, error) {
	outcome := checker.Outcome{Pods: len(scope.calls)}
	ring, err := scope.rotated, error(nil)
	if ring == nil {
		ring, err = w.oneKey()
	}
	if err != nil {
		return outcome, err
	}
	ca, err := os.ReadFile(w.cluster.CAFile())
	if err != nil {
		return outcome, err
	}
	begun := time.Now()
	var now checker.Snapshot
	live := map[types.UID]bool{}
	for well := false; ; {
		if now, err = w.snapshot(ctx); err != nil {
			return outcome, err
		}
		clear(live)
		for _, account := range now.Accounts {
			live[account.UID] = true
		}
		now = now.InNamespaces(scope.prefix)
		outcome.Violations = checker.Judge(now, scope.model, w.mode, string(ca), ring.Verify)
		if scope.rotated != nil {
			found, reissued := checker.JudgeReissue(now, scope.model,
				func(token string) bool { return checker.SignedWith(token) != ring.Active })
			outcome.Violations, outcome.Reissued = append(outcome.Violations, found...), reissued
		}
		if well || time.Since(begun) > scope.timeout {
			break
		}
		again := 200 * time.Millisecond
		if well = len(outcome.Violations) == 0; well {
			outcome.Settled = time.Since(begun)
			again = scope.lasts
		}
		if !await.Sleep(ctx, again) {
			return outcome, context.Cause(ctx)
		}
	}
	outcome.Objects = len(now.Accounts) + len(now.Secrets) + len(now.ConfigMaps)
	if err := w.checkTokens(ctx, now, live, scope, &outcome); err != nil {
		return outcome, err
	}
	w.checkCalls(scope.calls, &outcome)
	w.checkWrites(scope.calls, &outcome)
	w.checkLogs(&outcome)
	outcome.Violations = append(outcome.Violations, w.found...)
	w.found = nil
	return outcome, nil
}

// oneKey is the ring of the one key in the cluster's file.
func (w *World) oneKey() (*checker.KeyRing, error) {
	key, err := keyutil.PrivateKeyFromFile(w.cluster.SigningKeyFile())
	if err != nil {
		return nil, err
	}
	public := key.(crypto.Signer).Public()
	der, err := x509.MarshalPKIXPublicKey(public)
	return &checker.KeyRing{Keys: map[string]crypto.PublicKey{checker.KeyIDOf(der): public}}, err
}

// question is one about a token, of which secret says where it is. want is the user that it has to stand for, "" if it must be
// refused.
type question struct {
	token, secret, want string
	uid                 types.UID
	atOnce              bool // the first answer has to be right
}

// reviewers is how many TokenReviews are under way at a time.
const reviewers = 8

// checkTokens has kube-apiserver judge every token that there is, and every one that was
// ever seen there and whose account is gone. live are all accounts of the
// cluster.
func (w *World) checkTokens(ctx context.Context, now checker.Snapshot, live map[types.UID]bool, scope scope,
	outcome *checker.Outcome) error {
	questions := scope.bound
	current := map[string]bool{}
	for _, secret := range checker.Sorted(now.Secrets) {
		if token := string(secret.Data[corev1.ServiceAccountTokenKey]); secret.Type == corev1.SecretTypeServiceAccountToken && token != "" {
			current[token] = true
			questions = append(questions, question{
				token: token, secret: secret.Namespace + "/" + secret.Name, uid: workload.Owner(secret),
				want: "system:serviceaccount:" + secret.Namespace + ":" + secret.Annotations[corev1.ServiceAccountNameKey],
			})
			outcome.Tokens++
		}
	}
	for token, of := range w.tokens.Seen() {
		if uid := checker.ClaimedUID(token); strings.HasPrefix(of.Namespace, scope.prefix) && !current[token] && !live[uid] {
			questions = append(questions, question{token: token, uid: uid})
			outcome.DeadTokens++
		}
	}
	wrong, errs := make([]string, len(questions)), make([]error, len(questions))
	workqueue.ParallelizeUntil(ctx, reviewers, len(questions), func(i int) { wrong[i], errs[i] = w.askAbout(ctx, questions[i]) })
	for i, q := range questions {
		switch {
		case wrong[i] == "":
		case q.want == "":
			outcome.Violations = append(outcome.Violations,
				checker.Violated(2, "kube-apiserver accepts a token of UID %s, which is dead", q.uid))
		default:
			outcome.Violations = append(outcome.Violations,
				checker.Violated(4, "kube-apiserver does not take the token of %s for %s: %s", q.secret, q.want, wrong[i]))
		}
	}
	return errors.Join(errors.Join(errs...), ctx.Err())
}

// For so long a wrong answer is asked for again. kube-apiserver looks accounts and Secrets up in
// caches of its own, which may be late, and goes on to accept for 10 s a token that it has just
// accepted (its cache of authenticated tokens): a user's client may have used it right before its
// account was deleted.
const (
	reviewAgain     = 2 * time.Second
	reviewDeadAgain = 12 * time.Second
)

// askAbout returns what kube-apiserver says of a token, once it stays wrong, "" if it is right.
func (w *World) askAbout(ctx context.Context, q question) (wrong string, err error) {
	limit := reviewAgain
	switch {
	case q.want == "":
		limit = reviewDeadAgain
	case q.atOnce:
		limit = 0
	}
	for begun := time.Now(); ; {
		review, err := w.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: q.token},
		}, metav1.CreateOptions{})
		if err != nil {
			return "", fmt.Errorf("review a token: %w", err)
		}
		user := review.Status.User
		right := review.Status.Authenticated && user.Username == q.want && user.UID == string(q.uid)
		if q.want == "" {
			right = !review.Status.Authenticated
		}
		if right {
			return "", nil
		}
		if time.Since(begun) > limit || !await.Sleep(ctx, 200*time.Millisecond) {
			return fmt.Sprintf("it is that of %q, %s", user.Username, review.Status.Error), nil
		}
	}
}

// mostRefused is how many Pods in a hundred may be refused for no reason while other programs use the machine: then a replica
// stands still for seconds.
const mostRefused = 3

// checkCalls judges every Pod.
func (w *World) checkCalls(calls []workload.Call, outcome *checker.Outcome) {
	var refused []checker.Violation
	for _, call := range calls {
		what := checker.JudgeCall(call, w.excuses)
		found := checker.Violated(5, "Pod %s/%s at %s: %s", call.Namespace, call.Name, call.Begun.Format(time.StampMilli), what)
		switch {
		case what == "":
		case call.Err != nil:
			refused = append(refused, found)
		default:
			outcome.Violations = append(outcome.Violations, found)
		}
	}
	if !w.Busy || len(refused)*100 > len(calls)*mostRefused {
		outcome.Violations = append(outcome.Violations, refused...)
	} else {
		outcome.Unsure = append(outcome.Unsure, refused...)
	}
}

// checkWrites goes through the journals of all proxies.
func (w *World) checkWrites(calls []workload.Call, outcome *checker.Outcome) {
	asked := checker.PodNamespaces(calls)
	for _, t := range w.terms() {
		writes, found := checker.JudgeWrites(t.proxy.Requests(faultproxy.Any), renewDeadline, asked, t.resumed)
		outcome.Writes += writes
		outcome.Violations = append(outcome.Violations, found...)
	}
}

// snapshot lists all there is, from kube-apiserver's newest state.
func (w *World) snapshot(ctx context.Context) (checker.Snapshot, error) {
	core := w.client.CoreV1()
	namespaces, err1 := core.Namespaces().List(ctx, metav1.ListOptions{})
	accounts, err2 := core.ServiceAccounts("").List(ctx, metav1.ListOptions{})
	secrets, err3 := core.Secrets("").List(ctx, metav1.ListOptions{})
	configMaps, err4 := core.ConfigMaps("").List(ctx, metav1.ListOptions{})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return checker.Snapshot{}, fmt.Errorf("list all there is: %w", err)
	}
	held := map[types.UID][]types.UID{}
	for token, of := range w.tokens.Seen() {
		held[of.Secret] = append(held[of.Secret], checker.ClaimedUID(token))
	}
	return checker.Snapshot{
		Namespaces: namespaces.Items, Accounts: byKey(accounts.Items), Secrets: byKey(secrets.Items),
		ConfigMaps: byKey(configMaps.Items), Held: held,
	}, nil
}

func byKey[T any, P interface {
	*T
	metav1.Object
}](items []T) map[types.NamespacedName]P {
	all := map[types.NamespacedName]P{}
	for i := range items {
		object := P(&items[i])
		all[checker.Key(object.GetNamespace(), object.GetName())] = object
	}
	return all
}

// checkLogs looks for tokens and keys in all that processes have printed.
func (w *World) checkLogs(outcome *checker.Outcome) {
	var secrets canary.Canary
	secrets.AddTokens(slices.Collect(maps.Keys(w.tokens.Seen())))
	for _, t := range w.terms() {
		printed := t.manager.Logs()
		outcome.LogBytes += len(printed)
		if what, _ := secrets.Find(printed); what != "" {
			outcome.Violations = append(outcome.Violations, checker.Violated(6, "a log holds %s", what))
		}
	}
}

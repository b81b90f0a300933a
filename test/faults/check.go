// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/keyutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/test/integration/faultproxy"
)

// scope is what is judged: what there must be, in namespaces whose names begin with prefix.
type scope struct {
	model  workload.Model
	prefix string
	// lasts is how long all has to stay well once it is.
	lasts time.Duration
}

// check awaits that all is as promised, within the given timeout, and then looks at
// everything else that the run has left behind.
func (w *World) check(ctx context.Context, scope scope, calls []workload.Call, timeout time.Duration) (checker.Outcome, error) {
	outcome := checker.Outcome{Pods: len(calls)}
	ring, err := w.oneKey()
	if err != nil {
		return outcome, err
	}
	ca, err := os.ReadFile(w.cluster.CAFile())
	if err != nil {
		return outcome, err
	}
	begun := time.Now()
	var now checker.Snapshot
	var live map[types.UID]bool
	for well := false; ; {
		if now, err = w.snapshot(ctx); err != nil {
			return outcome, err
		}
		live = liveUIDs(now)
		now = now.InNamespaces(scope.prefix)
		outcome.Violations = checker.Judge(now, scope.model, w.mode, string(ca), ring.Verify)
		if well || time.Since(begun) > timeout {
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
	w.checkCalls(calls, &outcome)
	w.checkWrites(calls, &outcome)
	w.checkLogs(&outcome)
	w.mu.Lock()
	outcome.Violations = append(outcome.Violations, w.found...)
	outcome.Unsure = errors.Join(w.unreported...)
	outcome.Injected = w.injected
	w.found, w.unreported, w.injected = nil, nil, map[checker.Kind]int{}
	w.mu.Unlock()
	var found []checker.Violation
	outcome.Samples, outcome.Most, found = w.monitor.take()
	outcome.Violations = append(outcome.Violations, found...)
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

func liveUIDs(now checker.Snapshot) map[types.UID]bool {
	live := map[types.UID]bool{}
	for _, account := range now.Accounts {
		live[account.UID] = true
	}
	return live
}

// question is one about a token, of which secret says where it is. want is the user that it has to stand for, "" if it must be
// refused.
type question struct {
	token, secret, want string
	uid                 types.UID
}

// reviewers is how many TokenReviews are under way at a time.
const reviewers = 8

// checkTokens has kube-apiserver judge every token that there is, and every one that was
// ever seen there and whose account is gone. live are all accounts of the
// cluster.
func (w *World) checkTokens(ctx context.Context, now checker.Snapshot, live map[types.UID]bool, scope scope,
	outcome *checker.Outcome) error {
	var questions []question
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
	next := make(chan question)
	var mu sync.Mutex
	var errs []error
	var working sync.WaitGroup
	for range reviewers {
		working.Go(func() {
			for q := range next {
				found, err := w.askAbout(ctx, q)
				mu.Lock()
				outcome.Violations = append(outcome.Violations, found...)
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	for _, q := range questions {
		next <- q
	}
	close(next)
	working.Wait()
	return errors.Join(errs...)
}

// For so long a wrong answer is asked for again. kube-apiserver looks accounts and Secrets up in
// caches of its own, which may be late, and goes on to accept for 10 s a token that it has just
// accepted (its cache of authenticated tokens): a user's client may have used it right before its
// account was deleted.
const (
	reviewAgain     = 2 * time.Second
	reviewDeadAgain = 12 * time.Second
)

// askAbout returns what is wrong with a token, once it stays so.
func (w *World) askAbout(ctx context.Context, q question) ([]checker.Violation, error) {
	limit := reviewAgain
	if q.want == "" {
		limit = reviewDeadAgain
	}
	for begun := time.Now(); ; {
		status, err := w.review(ctx, q.token)
		if err != nil {
			return nil, err
		}
		found := q.judge(status)
		if found == nil || time.Since(begun) > limit || !await.Sleep(ctx, 200*time.Millisecond) {
			return found, nil
		}
	}
}

func (q question) judge(status authenticationv1.TokenReviewStatus) []checker.Violation {
	switch {
	case q.want == "" && status.Authenticated:
		return []checker.Violation{checker.Violated(2, "kube-apiserver accepts a token of UID %s, which is dead", q.uid)}
	case q.want != "" && (!status.Authenticated || status.User.Username != q.want || status.User.UID != string(q.uid)):
		return []checker.Violation{checker.Violated(4, "kube-apiserver does not take the token of %s for %s: %s", q.secret, q.want, status.Error)}
	}
	return nil
}

func (w *World) review(ctx context.Context, token string) (authenticationv1.TokenReviewStatus, error) {
	review, err := w.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.TokenReviewStatus{}, fmt.Errorf("review a token: %w", err)
	}
	return review.Status, nil
}

// checkCalls judges every Pod.
func (w *World) checkCalls(calls []workload.Call, outcome *checker.Outcome) {
	excuses := w.excuses.List()
	for _, call := range calls {
		if what := checker.JudgeCall(call, excuses); what != "" {
			found := checker.Violated(5, "Pod %s/%s at %s: %s", call.Namespace, call.Name, call.Begun.Format(time.StampMilli), what)
			if checker.RefusedWhileStarved(call, excuses) {
				w.noteUnsure(fmt.Errorf("%v, but other programs used the machine", found))
			} else {
				outcome.Violations = append(outcome.Violations, found)
			}
		}
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

// checkLogs looks for tokens in all that processes have printed.
func (w *World) checkLogs(outcome *checker.Outcome) {
	seen := checker.SignaturesOf(w.tokens.Seen())
	for _, t := range w.terms() {
		printed := t.manager.Logs()
		outcome.LogBytes += len(printed)
		if what := checker.Leak(printed, seen); what != "" {
			outcome.Violations = append(outcome.Violations, checker.Violated(6, "a log holds %s", what))
		}
	}
}

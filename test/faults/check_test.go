// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/test/integration/faultproxy"
	"sa-controller-manager/test/integration/testcluster"
)

// stayWell is how long all has to stay well once it is. What tries again after a second or two
// has shown itself by then.
const stayWell = 3 * time.Second

// check awaits that all is as promised, and that it stays so, and then looks at everything else that the run has left behind.
// active is the key that has to have signed what leads accounts to their tokens, "" if no key was changed.
func (w *world) check(t *testing.T, model workload.Model, active string) {
	t.Helper()
	var now checker.Snapshot
	var reissued int
	judge := func() error {
		await.Sleep(t.Context(), 200*time.Millisecond) // a look costs four lists
		now = w.snapshot(t)
		found := checker.Judge(now, model, w.mode, w.RootCA(t), func(string) error { return nil }) // kube-apiserver verifies below
		if active != "" {
			var more []checker.Violation
			more, reissued = checker.JudgeReissue(now, model, func(token string) bool { return checker.SignedWith(token) != active })
			found = append(found, more...)
		}
		var errs []error
		for _, violation := range found {
			errs = append(errs, errors.New(violation.String()))
		}
		return errors.Join(errs...)
	}
	testcluster.Poll(t, "await that all promises are kept", judge)
	await.Sleep(t.Context(), stayWell)
	testutil.Must(t, judge())
	t.Logf("%d Secrets replace one", reissued)
	w.checkTokens(t, now)
	w.checkPods(t)
	w.checkWrites(t)
}

// snapshot lists all there is, from kube-apiserver's newest state.
func (w *world) snapshot(t *testing.T) checker.Snapshot {
	t.Helper()
	core := w.API.CoreV1()
	all := metav1.ListOptions{}
	now := checker.Snapshot{Namespaces: testutil.Get(core.Namespaces().List(t.Context(), all))(t).Items, Held: map[types.UID][]types.UID{}}
	now.Accounts = byKey(testutil.Get(core.ServiceAccounts("").List(t.Context(), all))(t).Items)
	now.Secrets = byKey(testutil.Get(core.Secrets("").List(t.Context(), all))(t).Items)
	now.ConfigMaps = byKey(testutil.Get(core.ConfigMaps("").List(t.Context(), all))(t).Items)
	for token, of := range w.Tokens.Seen() {
		now.Held[of.Secret] = append(now.Held[of.Secret], checker.ClaimedUID(token))
	}
	return now
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

// question is one about a token. want is the user that it has to stand for, "" if it must be refused.
type question struct {
	what, token, want string
	uid               types.UID
	atOnce            bool // the first answer has to be right
}

// checkTokens has kube-apiserver judge every token that there is, and every one that was ever seen and whose account is gone.
func (w *world) checkTokens(t *testing.T, now checker.Snapshot) {
	t.Helper()
	var questions []question
	current, live := map[string]bool{}, map[types.UID]bool{}
	for _, account := range now.Accounts {
		live[account.UID] = true
	}
	for _, secret := range now.Secrets {
		if token := string(secret.Data[corev1.ServiceAccountTokenKey]); secret.Type == corev1.SecretTypeServiceAccountToken && token != "" {
			current[token] = true
			questions = append(questions, question{
				what: "the token of " + secret.Namespace + "/" + secret.Name, token: token, uid: workload.Owner(secret),
				want: "system:serviceaccount:" + secret.Namespace + ":" + secret.Annotations[corev1.ServiceAccountNameKey],
			})
		}
	}
	testutil.Expect(t, len(questions) > 0, "there is no token, so this shows nothing")
	for token := range w.Tokens.Seen() {
		if uid := checker.ClaimedUID(token); !current[token] && !live[uid] {
			questions = append(questions, question{what: "a token of UID " + string(uid) + ", which is dead", token: token})
		}
	}
	for secret, held := range now.Held {
		testutil.Expect(t, len(held) == 1, "promise 4: the token of the Secret with UID %s was overwritten", secret)
	}
	t.Logf("%d tokens in Secrets, %d of the dead", len(current), len(questions)-len(current))
	w.ask(t, questions)
}

func (w *world) ask(t *testing.T, questions []question) {
	t.Helper()
	const atATime = 8
	workqueue.ParallelizeUntil(t.Context(), atATime, len(questions), func(i int) {
		err := w.answer(t.Context(), questions[i])
		testutil.Expect(t, err == nil, "promises 2 and 4: %s: %v", questions[i].what, err)
	})
}

// For so long a wrong answer is asked for again. kube-apiserver looks accounts and Secrets up in
// caches of its own, which may be late, and goes on to accept for 10 s a token that it has just
// accepted (its cache of authenticated tokens): a user's client may have used it right before its
// account was deleted.
const (
	reviewAgain     = 2 * time.Second
	reviewDeadAgain = 12 * time.Second
)

// answer returns what is wrong with what kube-apiserver says of a token.
func (w *world) answer(ctx context.Context, q question) error {
	limit := reviewAgain
	switch {
	case q.want == "":
		limit = reviewDeadAgain
	case q.atOnce:
		limit = 0
	}
	for begun := time.Now(); ; {
		review, err := w.Review(ctx, q.token)
		if err != nil {
			return err
		}
		right := review.Authenticated && review.User.Username == q.want && review.User.UID == string(q.uid)
		if q.want == "" {
			right = !review.Authenticated
		}
		if right {
			return nil
		}
		if time.Since(begun) > limit || !await.Sleep(ctx, 200*time.Millisecond) {
			return fmt.Errorf("kube-apiserver takes it for %q, want %q: %s", review.User.Username, q.want, review.Error)
		}
	}
}

// excuse says what the product may do while a fault is under way.
type excuse int

const (
	_ excuse = iota
	// refused means that Pods may be refused.
	refused
	// bare means that another client has taken the webhook out, so Pods come in without it, or are refused by the half that is left.
	bare
)

// interval is a time in which something is excused.
type interval struct {
	from, to time.Time
	excuse   excuse
}

const (
	// excuseLag is how long a fault goes on to be felt after its end: a balancer learns of a replica, kube-apiserver of a
	// configuration, a connection of its end, and what shares two processors with a control plane stands still for a second
	// or two now and then.
	excuseLag = 4500 * time.Millisecond
	// mostRefused is how many Pods in a hundred may be refused for no reason while other programs use the machine.
	mostRefused = 3
)

// checkPods judges every Pod (promise 5).
func (w *world) checkPods(t *testing.T) {
	t.Helper()
	var unexcused []error
	for _, pod := range w.pods {
		excused := func(by ...excuse) bool {
			return slices.ContainsFunc(w.excuses, func(i interval) bool {
				return slices.Contains(by, i.excuse) && pod.ended.After(i.from) && pod.begun.Before(i.to.Add(excuseLag))
			})
		}
		switch {
		case pod.err == nil && !excused(bare):
			testutil.Expect(t, !pod.unwanted && hasToken(pod.admitted), "promise 5: %s came in without an account or its token at %s",
				pod.name, pod.begun.Format(time.StampMilli))
		case pod.err != nil && !pod.unwanted && !excused(refused, bare):
			unexcused = append(unexcused, fmt.Errorf("at %s: %w", pod.begun.Format(time.StampMilli), pod.err))
		}
	}
	t.Logf("%d Pods, %d refused for no reason", len(w.pods), len(unexcused))
	most := 0
	if testing.Short() {
		most = len(w.pods) * mostRefused / 100
	}
	testutil.Expect(t, len(unexcused) <= most, "promise 5: %d of %d Pods were refused: %v", len(unexcused), len(w.pods), unexcused)
}

// hasToken reports whether a Pod has its account and mounts that account's projected token.
func hasToken(pod *corev1.Pod) bool {
	i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil &&
			slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
	})
	return pod.Spec.ServiceAccountName == workload.DefaultAccount && i >= 0 &&
		slices.ContainsFunc(pod.Spec.Containers[0].VolumeMounts,
			func(m corev1.VolumeMount) bool { return m.Name == pod.Spec.Volumes[i].Name })
}

// checkWrites goes through the journals of all proxies (promise 9). Any replica may create the account that a Pod waits for.
func (w *world) checkWrites(t *testing.T) {
	t.Helper()
	asked := func(namespace string) bool { return namespace == podNamespace || namespace == metav1.NamespaceSystem }
	total := 0
	for _, r := range w.replicas {
		for _, l := range r.lives {
			writes, found := checker.JudgeWrites(l.proxy.Requests(faultproxy.Any), renewDeadline, asked, l.resumed)
			total += writes
			testutil.Expect(t, len(found) == 0, "%s: %v", r.name, found)
		}
	}
	testutil.Expect(t, total > 0, "no replica has written anything, so this shows nothing")
	t.Logf("%d writes of leaders", total)
}

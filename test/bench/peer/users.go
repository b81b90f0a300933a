// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"sa-controller-manager/test/devcluster"
)

const (
	// changePeriod is how often the user changes all of the objects.
	changePeriod = 2 * time.Second
	// userNamespace is where the user has all rights.
	userNamespace = "user"
	// longestList is how many references fit into an account, and longLists into each of several.
	longestList, longLists, forgedList = 10_000, 4000, 3000
)

// worst is a user's worst object of a kind that the program reads.
type worst struct {
	name          string
	write, change func(ctx context.Context, w *world) error
}

// users measures what one user's objects cost, and how long the accounts of others wait meanwhile for their token
// Secrets. sa-controller-manager is in mode auto, which reads and writes most; kube-controller-manager has no such mode.
func (o *Options) users(ctx context.Context) error {
	for _, objects := range o.worstObjects() {
		o.statusf("users, %s", objects.name)
		if err := onFresh(ctx, devcluster.Options{SigningKey: devcluster.ECDSA}, func(ctx context.Context, w *world) error {
			return o.suffer(ctx, w, objects)
		}); err != nil {
			return fmt.Errorf("%s: %w", objects.name, err)
		}
	}
	return nil
}

func (o *Options) worstObjects() []worst {
	accounts := func(n int, secrets func(account string) []corev1.ObjectReference) func(ctx context.Context, w *world) error {
		return func(ctx context.Context, w *world) error {
			return each(ctx, writers, n, func(ctx context.Context, i int) error {
				name := userAccount(i)
				return w.makeReferences(ctx, name, secrets(name), "user")
			})
		}
	}
	none := func(context.Context, *world) error { return nil }
	return []worst{
		{"nothing", none, none},
		{"8 accounts with 4000 references", accounts(8, tokenNames(longLists)), annotate(8)},
		{"an account with 10000 references", accounts(1, tokenNames(longestList)), annotate(1)},
		{"3000 forged references", none, func(ctx context.Context, w *world) error {
			return w.makeReferences(ctx, userAccount(0), tokenNames(forgedList)("forged"), ours)
		}},
		{fmt.Sprintf("%d token Secrets of an account", o.OfAccount), func(ctx context.Context, w *world) error {
			return errors.Join(accounts(1, tokenNames(0))(ctx, w), each(ctx, writers, o.OfAccount, func(ctx context.Context, i int) error {
				return w.makeTokenSecret(ctx, userNamespace, fmt.Sprintf("mine-%05d", i), userAccount(0))
			}))
		}, func(ctx context.Context, w *world) error { // that has none of its own then
			return w.makeReferences(ctx, userAccount(0), nil, "user")
		}},
		{"auto-created Secrets that are deleted", accounts(8, tokenNames(0)), func(ctx context.Context, w *world) error {
			return w.client.CoreV1().Secrets(userNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		}},
		{"a root CA that a policy rewrites", func(ctx context.Context, w *world) error {
			return devcluster.RewriteRootCA(ctx, w.client, userNamespace)
		}, func(ctx context.Context, w *world) error {
			_, err := w.client.CoreV1().ConfigMaps(userNamespace).Patch(ctx, "kube-root-ca.crt", types.MergePatchType,
				fmt.Appendf(nil, `{"metadata":{"annotations":{"changed":%q}}}`, rand.String(8)), metav1.PatchOptions{})
			return err
		}},
	}
}

func userAccount(i int) string { return fmt.Sprintf("user-%d", i) }

// tokenNames are references such as a token controller makes.
func tokenNames(n int) func(account string) []corev1.ObjectReference {
	return func(account string) (references []corev1.ObjectReference) {
		for range n {
			references = append(references, corev1.ObjectReference{Name: account + "-token-" + rand.String(5)})
		}
		return references
	}
}

// makeReferences makes an account, or gives it these references and no other.
func (w *world) makeReferences(ctx context.Context, name string, references []corev1.ObjectReference, manager string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}, Secrets: references}
	accounts := w.client.CoreV1().ServiceAccounts(userNamespace)
	_, err := accounts.Create(ctx, account, metav1.CreateOptions{FieldManager: manager})
	if apierrors.IsAlreadyExists(err) {
		_, err = accounts.Update(ctx, account, metav1.UpdateOptions{FieldManager: manager})
	}
	return err
}

func annotate(n int) func(ctx context.Context, w *world) error {
	return func(ctx context.Context, w *world) error {
		return each(ctx, writers, n, func(ctx context.Context, i int) error {
			_, err := w.client.CoreV1().ServiceAccounts(userNamespace).Patch(ctx, userAccount(i), types.MergePatchType,
				fmt.Appendf(nil, `{"metadata":{"annotations":{"changed":%q}}}`, rand.String(8)), metav1.PatchOptions{})
			return err
		})
	}
}

// suffer measures one kind of object, while others make accounts.
func (o *Options) suffer(ctx context.Context, w *world, objects worst) error {
	r, err := o.start(ctx, w, ours, append(unlimited, "--token-secrets=auto")...)
	if err != nil {
		return err
	}
	for _, namespace := range []string{userNamespace, "others"} {
		if err := w.makeNamespace(ctx, namespace); err != nil {
			return err
		}
	}
	before, err := r.cost(ctx)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeoutCause(ctx, o.Window, errWindow)
	defer stop()
	if err := objects.write(ctx, w); err != nil {
		return err
	}
	changed := make(chan error, 1)
	go func() { changed <- o.keepChanging(ctx, w, objects.change) }()
	slowest, err := o.slowest(ctx, w, r)
	if err := errors.Join(err, <-changed); err != nil {
		return err
	}
	after, err := r.cost(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	spent, scenario := after.since(before), "user: "+objects.name
	minutes := after.at.Sub(before.at).Minutes()
	o.statusf("%s: %v in %.1f minutes", scenario, spent.methods, minutes)
	o.add(scenario, "slowest token Secret of others, s", ours, slowest.Seconds())
	o.add(scenario, "requests a minute", ours, spent.methods.sum()/minutes)
	o.add(scenario, "CPU a minute, s", ours, spent.cpu/minutes)
	o.add(scenario, "CPU of kube-apiserver a minute, s", ours, spent.apiServer/minutes)
	return nil
}

// errWindow ends what is measured for a time.
var errWindow = errors.New("the time of the measurement is over")

// keepChanging ends with ctx.
func (o *Options) keepChanging(ctx context.Context, w *world, change func(context.Context, *world) error) error {
	for sleep(ctx, changePeriod) == nil {
		// What the program has changed meanwhile is a conflict, or slow.
		if err := change(ctx, w); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("change the objects: %w", err)
		}
	}
	return nil
}

// slowest makes accounts of others, one after the other with a pause, until ctx ends, and returns the longest time that one waited for its
// token Secret. One that has none by the end has waited that long at least.
func (o *Options) slowest(ctx context.Context, w *world, r *running) (longest time.Duration, err error) {
	for i := 0; ctx.Err() == nil; i++ {
		begun, name := time.Now(), fmt.Sprintf("victim-%d", i)
		took, err := w.complete(ctx, r, []string{filledOf("others", name)}, 1, func(ctx context.Context, _ int) error {
			return w.makeAccount(ctx, "others", name)
		})
		if ctx.Err() != nil {
			took, err = time.Since(begun), nil
		}
		if err != nil {
			return 0, err
		}
		longest = max(longest, took)
		_ = sleep(ctx, changePeriod/4) // the loop ends with ctx
	}
	return longest, nil
}

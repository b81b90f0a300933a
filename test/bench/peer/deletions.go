// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/devcluster"
)

// deletions are of many accounts at once: how long it takes until the token Secret of each is gone, too. Few may not wait for
// what makes many cheap. Nothing else limits a program.
func (o *Options) deletions(ctx context.Context) error {
	for range o.Sizes.Repetitions {
		for _, program := range []string{kcm, ours} {
			o.statusf("deletions, %s", program)
			if err := onFresh(ctx, devcluster.Options{SigningKey: devcluster.ECDSA}, func(ctx context.Context, w *world) error {
				return o.deleted(ctx, w, program)
			}); err != nil {
				return fmt.Errorf("%s: %w", program, err)
			}
		}
	}
	return nil
}

// deleted has the program fill the token Secret of each account, and deletes the accounts, the few before the many.
func (o *Options) deleted(ctx context.Context, w *world, program string) error {
	r, err := o.start(ctx, w, program, unlimited...)
	if err != nil {
		return err
	}
	if err := each(ctx, writers, min(tokenNamespaces, o.Sizes.Namespaces), func(ctx context.Context, i int) error {
		return w.makeNamespace(ctx, bench(i))
	}); err != nil {
		return err
	}
	begin := 0
	for _, size := range o.Deleted {
		var names, gone []string
		for i := range size {
			namespace, name := o.place(begin + i)
			names, gone = append(names, filled(namespace, name)), append(gone, deletedSecret(namespace, name))
		}
		forEach := func(do func(ctx context.Context, namespace, name string) error) func(context.Context, int) error {
			return func(ctx context.Context, i int) error {
				namespace, name := o.place(begin + i)
				return do(ctx, namespace, name)
			}
		}
		if _, err := w.complete(ctx, r, names, size, forEach(func(ctx context.Context, namespace, name string) error {
			if err := w.makeAccount(ctx, namespace, name); err != nil {
				return err
			}
			return w.makeTokenSecret(ctx, namespace, name, name)
		})); err != nil {
			return err
		}
		if err := o.measured(ctx, w, r, fmt.Sprintf("%d accounts deleted", size), gone, size,
			forEach(func(ctx context.Context, namespace, name string) error {
				return w.client.CoreV1().ServiceAccounts(namespace).Delete(ctx, name, metav1.DeleteOptions{})
			})); err != nil {
			return err
		}
		begin += size
	}
	return nil
}

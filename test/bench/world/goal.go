// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// Goal is a set of things that have yet to become true, by name. It is safe for any
// number of goroutines.
type Goal struct {
	mu      sync.Mutex
	missing map[string]struct{}
	total   int
	reached time.Time // the last of them
	done    chan struct{}
}

// Goal wants all of these, from now on.
func (w *World) Goal(names ...string) *Goal {
	g := &Goal{missing: make(map[string]struct{}, len(names)), done: make(chan struct{})}
	for _, name := range names {
		g.missing[name] = struct{}{}
	}
	if g.total = len(g.missing); g.total == 0 {
		close(g.done)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.goals = append(w.goals, g)
	return g
}

// reach notes what has become true, and reports whether more is missing.
func (g *Goal) reach(names []string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := len(g.missing)
	for _, name := range names {
		delete(g.missing, name)
	}
	if now := len(g.missing); now < before {
		g.reached = time.Now()
		if now == 0 {
			close(g.done)
		}
	}
	return len(g.missing) > 0
}

// Wait returns the moment at which the last one was reached. A program that ends before is an error.
func (g *Goal) Wait(ctx context.Context, needed *Running) (time.Time, error) {
	var ended <-chan struct{}
	if needed != nil {
		ended = needed.Done()
	}
	var err error
	select {
	case <-g.done:
		return g.reached, nil
	case <-ended:
		err = fmt.Errorf("%s has ended:\n%s", needed.Name, needed.LogTail(20))
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for example := range g.missing {
		return time.Time{}, fmt.Errorf("%w: %d of %d were reached, and not %s", err, g.total-len(g.missing), g.total, example)
	}
	return g.reached, nil
}

// watch has goals noticed until ctx ends.
func (w *World) watch(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(w.Client, 0)
	core := factory.Core().V1()
	for _, informer := range []cache.SharedIndexInformer{
		core.ServiceAccounts().Informer(), core.ConfigMaps().Informer(), core.Secrets().Informer(),
	} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { w.notice(names(object)) },
			UpdateFunc: func(_, object any) { w.notice(names(object)) },
			DeleteFunc: func(object any) {
				if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
					object = last.Obj
				}
				if secret, ok := object.(*corev1.Secret); ok {
					w.notice([]string{Gone(secret.Namespace, secret.Name)})
				}
			},
		}); err != nil {
			return err
		}
	}
	factory.StartWithContext(ctx)
	for _, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return errors.New("the watches have not begun")
		}
	}
	return nil
}

func (w *World) notice(names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.goals = slices.DeleteFunc(w.goals, func(g *Goal) bool { return !g.reach(names) })
}

// Names of what goals consist of.

// Account is that a ServiceAccount exists.
func Account(namespace, name string) string { return "account " + namespace + "/" + name }

// RootCA is that a namespace has its kube-root-ca.crt.
func RootCA(namespace string) string { return "root CA of " + namespace }

// Filled is that a token Secret has all of its data.
func Filled(namespace, name string) string { return "filled Secret " + namespace + "/" + name }

// Own is that an account has a filled token Secret besides those that the measurement
// makes: what mode auto adds.
func Own(namespace, account string) string { return "Secret of account " + namespace + "/" + account }

// Gone is that a Secret was deleted.
func Gone(namespace, name string) string { return "end of Secret " + namespace + "/" + name }

// names are what an object makes true.
func names(object any) []string {
	switch o := object.(type) {
	case *corev1.ServiceAccount:
		return []string{Account(o.Namespace, o.Name)}
	case *corev1.ConfigMap:
		if isRootCA(o) {
			return []string{RootCA(o.Namespace)}
		}
	case *corev1.Secret:
		if !isFilled(o) {
			return nil
		}
		if o.Labels[madeLabel] == "" {
			return []string{Own(o.Namespace, o.Annotations[corev1.ServiceAccountNameKey])}
		}
		return []string{Filled(o.Namespace, o.Name)}
	}
	return nil
}

func isRootCA(configMap *corev1.ConfigMap) bool {
	return configMap.Name == "kube-root-ca.crt" && configMap.Data[corev1.ServiceAccountRootCAKey] != ""
}

// isFilled reports whether a token Secret has all that a token controller gives it.
func isFilled(secret *corev1.Secret) bool {
	return secret.Type == corev1.SecretTypeServiceAccountToken && len(secret.Data[corev1.ServiceAccountTokenKey]) > 0 &&
		len(secret.Data[corev1.ServiceAccountRootCAKey]) > 0 && len(secret.Data[corev1.ServiceAccountNamespaceKey]) > 0
}

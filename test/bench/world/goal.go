// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
)

// Goal is a set of things that have yet to become true, by name. It is safe for any
// number of goroutines.
type Goal struct {
	mu      sync.Mutex
	missing map[string]struct{}
	total   int
	first   time.Time // when one was reached
	reached time.Time // the last of them
	err     error
	done    chan struct{}
}

// NewGoal wants all of these.
func NewGoal(names []string) *Goal {
	g := &Goal{missing: make(map[string]struct{}, len(names)), done: make(chan struct{})}
	for _, name := range names {
		g.missing[name] = struct{}{}
	}
	g.total = len(g.missing)
	if g.total == 0 {
		close(g.done)
	}
	return g
}

// Reach says that one has become true. What is not wanted, or was reached before, is
// ignored.
func (g *Goal) Reach(name string) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.missing[name]; !ok || g.err != nil {
		return
	}
	delete(g.missing, name)
	if g.first.IsZero() {
		g.first = now
	}
	g.reached = now
	if len(g.missing) == 0 {
		close(g.done)
	}
}

// fail ends the wait with an error, unless all was reached before.
func (g *Goal) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil && len(g.missing) > 0 {
		g.err = err
		close(g.done)
	}
}

// Needs fails the goal when a program ends before it is reached.
func (g *Goal) Needs(r *Running) {
	go func() {
		select {
		case <-r.Done():
			g.fail(fmt.Errorf("%s has ended:\n%s", r.Name, r.LogTail(20)))
		case <-g.done:
		}
	}()
}

// state is how many are reached, of how many, and one that is not.
func (g *Goal) state() (reached, total int, example string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for example = range g.missing {
		break
	}
	return g.total - len(g.missing), g.total, example
}

// Count returns how many are reached.
func (g *Goal) Count() int {
	reached, _, _ := g.state()
	return reached
}

// Wait returns the moment at which the last one was reached.
func (g *Goal) Wait(ctx context.Context) (time.Time, error) {
	select {
	case <-g.done:
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.reached, g.err
	case <-ctx.Done():
		reached, total, example := g.state()
		return time.Time{}, fmt.Errorf("%w: %d of %d were reached, and not %s", context.Cause(ctx), reached, total, example)
	}
}

// First is the moment at which one was reached; zero before that.
func (g *Goal) First() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.first
}

// Seen is called with every event.
type Seen func(event watch.EventType, object runtime.Object)

// Follow watches resources of the core group, in all namespaces and from now on, until
// ctx ends or the goal is reached. A watch that cannot be continued fails the goal.
func (w *World) Follow(ctx context.Context, goal *Goal, seen Seen, resources ...string) error {
	for _, resource := range resources {
		revision, err := w.revision(ctx, resource)
		if err != nil {
			return err
		}
		watcher, err := toolswatch.NewRetryWatcherWithContext(ctx, revision, w.watcher(resource))
		if err != nil {
			return fmt.Errorf("watch %s: %w", resource, err)
		}
		go follow(watcher, goal, seen, resource)
	}
	return nil
}

func (w *World) watcher(resource string) cache.WatcherWithContext {
	return &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		options.Watch = true
		return w.Client.CoreV1().RESTClient().Get().Resource(resource).VersionedParams(&options, scheme.ParameterCodec).Watch(ctx)
	}}
}

func follow(watcher *toolswatch.RetryWatcher, goal *Goal, seen Seen, resource string) {
	defer watcher.Stop()
	for {
		select {
		case <-goal.done:
			return
		case event, ok := <-watcher.ResultChan():
			switch {
			case !ok:
				goal.fail(fmt.Errorf("the watch of %s has ended", resource))
				return
			case event.Type == watch.Error:
				goal.fail(fmt.Errorf("watch %s: %w", resource, apierrors.FromObject(event.Object)))
				return
			}
			seen(event.Type, event.Object)
		}
	}
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

// RootCAName is the ConfigMap that every namespace gets.
const RootCAName = "kube-root-ca.crt"

// Notice tells the goal of everything above.
func Notice(goal *Goal) Seen {
	return func(event watch.EventType, object runtime.Object) {
		switch o := object.(type) {
		case *corev1.ServiceAccount:
			if event != watch.Deleted {
				goal.Reach(Account(o.Namespace, o.Name))
			}
		case *corev1.ConfigMap:
			if event != watch.Deleted && o.Name == RootCAName && o.Data["ca.crt"] != "" {
				goal.Reach(RootCA(o.Namespace))
			}
		case *corev1.Secret:
			noticeSecret(goal, event, o)
		}
	}
}

func noticeSecret(goal *Goal, event watch.EventType, secret *corev1.Secret) {
	if event == watch.Deleted {
		goal.Reach(Gone(secret.Namespace, secret.Name))
		return
	}
	if !IsFilled(secret) {
		return
	}
	goal.Reach(Filled(secret.Namespace, secret.Name))
	if !IsOurs(secret) {
		goal.Reach(Own(secret.Namespace, secret.Annotations[corev1.ServiceAccountNameKey]))
	}
}

// IsFilled reports whether a token Secret has all that a token controller gives it.
func IsFilled(secret *corev1.Secret) bool {
	return secret.Type == corev1.SecretTypeServiceAccountToken && len(secret.Data[corev1.ServiceAccountTokenKey]) > 0 &&
		len(secret.Data[corev1.ServiceAccountRootCAKey]) > 0 && len(secret.Data[corev1.ServiceAccountNamespaceKey]) > 0
}

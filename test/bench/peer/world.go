// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/must"
)

const (
	// measured is whom the programs are for kube-apiserver. It belongs to system:masters, whose requests wait in no
	// queue of priority and fairness.
	measured = "measured"
	// writers is how many clients write at a time. None of them is limited on its own side.
	writers = 16
)

// world is a control plane that is measured on, and its administrator. What is awaited is awaited by watch, so that
// waiting costs the same whatever program is measured.
type world struct {
	*devcluster.Cluster

	client     kubernetes.Interface
	kubeconfig string // of measured

	mu   sync.Mutex
	seen map[string]time.Time // what has become true, and when it was seen
}

// onFresh calls do with a control plane of its own, which ends with it.
func onFresh(ctx context.Context, options devcluster.Options, do func(context.Context, *world)) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cluster := must.Get(devcluster.Start(ctx, options))
	err := must.Catch(func() { do(ctx, newWorld(ctx, cluster)) })
	stop() // the watches, before what they watch
	must.Do(errors.Join(err, cluster.Stop()))
}

func newWorld(ctx context.Context, cluster *devcluster.Cluster) *world {
	w := &world{Cluster: cluster, seen: map[string]time.Time{}}
	config := cluster.Config()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = config.ContentType + ",application/json"
	config.WarningHandler = rest.NoWarnings{}
	w.client = must.Get(kubernetes.NewForConfig(config))
	var err error
	w.kubeconfig, _, err = cluster.Identity(measured, "system:masters")
	must.Do(err)
	w.watch(ctx)
	return w
}

func (w *world) watch(ctx context.Context) {
	factory := informers.NewSharedInformerFactory(w.client, 0)
	core := factory.Core().V1()
	for _, informer := range []cache.SharedIndexInformer{
		core.ServiceAccounts().Informer(), core.ConfigMaps().Informer(), core.Secrets().Informer(),
	} {
		must.Get(informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: w.see, UpdateFunc: func(_, object any) { w.see(object) },
		}))
	}
	factory.StartWithContext(ctx)
	for _, synced := range factory.WaitForCacheSync(ctx.Done()) {
		must.Not(!synced, "the watches have not begun")
	}
}

// What is awaited, by name: that a ServiceAccount exists, that a namespace has its kube-root-ca.crt, that a token
// Secret has all of its data.
func accountOf(namespace, name string) string { return "account " + namespace + "/" + name }
func rootCA(namespace string) string          { return "root CA of " + namespace }
func filled(namespace, name string) string    { return "filled Secret " + namespace + "/" + name }

// see notes what an object makes true.
func (w *world) see(object any) {
	switch o := object.(type) {
	case *corev1.ServiceAccount:
		w.note(accountOf(o.Namespace, o.Name))
	case *corev1.ConfigMap:
		if o.Name == "kube-root-ca.crt" && o.Data[corev1.ServiceAccountRootCAKey] != "" {
			w.note(rootCA(o.Namespace))
		}
	case *corev1.Secret:
		if o.Type == corev1.SecretTypeServiceAccountToken && len(o.Data[corev1.ServiceAccountTokenKey]) > 0 &&
			len(o.Data[corev1.ServiceAccountRootCAKey]) > 0 && len(o.Data[corev1.ServiceAccountNamespaceKey]) > 0 {
			w.note(filled(o.Namespace, o.Name))
		}
	}
}

func (w *world) note(name string) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.seen[name]; !ok {
		w.seen[name] = now
	}
}

// complete loads so many objects and returns how long it took from the first request until the program had made all
// of the names true. A program that ends before is an error.
func (w *world) complete(ctx context.Context, r *running, names []string, size int,
	load func(ctx context.Context, i int) error) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, errors.New("the time for one wait is over"))
	defer cancel()
	begun := time.Now()
	if err := each(ctx, writers, size, load); err != nil {
		return 0, err
	}
	var last time.Time
	for {
		w.mu.Lock()
		names = slices.DeleteFunc(names, func(name string) bool {
			at, ok := w.seen[name]
			if at.After(last) {
				last = at
			}
			return ok
		})
		w.mu.Unlock()
		if len(names) == 0 {
			return last.Sub(begun), nil
		}
		select {
		case <-time.After(20 * time.Millisecond): // what counts is when the watch has seen it
		case <-r.Done():
			return 0, fmt.Errorf("%s has ended:\n%s", r.name, r.LogTail(20))
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: %d are missing, such as %s", context.Cause(ctx), len(names), names[0])
		}
	}
}

// each calls do for 0 to n-1 from so many goroutines, in order. The first error ends it.
func each(ctx context.Context, goroutines, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(goroutines)
	for i := range n {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return do(ctx, i)
		})
	}
	return group.Wait()
}

// bench is the name of one of the namespaces.
func bench(i int) string { return fmt.Sprintf("bench-%05d", i) }

func (w *world) makeNamespace(ctx context.Context, name string) error {
	_, err := w.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	return err
}

func (w *world) makeAccount(ctx context.Context, namespace, name string) error {
	_, err := w.client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	return err
}

// makeTokenSecret makes one that is to be filled.
func (w *world) makeTokenSecret(ctx context.Context, namespace, name, account string) error {
	return w.makeSecret(ctx, namespace, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: account}},
		Type:       corev1.SecretTypeServiceAccountToken,
	})
}

func (w *world) makeSecret(ctx context.Context, namespace string, secret *corev1.Secret) error {
	_, err := w.client.CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{})
	return err
}

// sleep waits, because time is what is measured.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

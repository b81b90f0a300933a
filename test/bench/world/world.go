// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package world makes what the measurements need: a fresh control plane, many objects at
// once, programs that process them, and a clock that stops when the last object is as
// it should be. What is awaited is awaited by watch, so that waiting costs the same whatever
// program is measured. Everything is bounded by its context.
package world

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"sa-controller-manager/test/devcluster"
)

const (
	// user is whom the measured programs are for kube-apiserver. It belongs to
	// system:masters, whose requests wait in no queue of priority and fairness.
	user = "measured"
	// writers is how many clients write at a time. None of them is limited on its own side.
	writers = 16
	// madeLabel is on every Secret that the measurement makes.
	madeLabel = "bench"
)

// World is a control plane that is measured on, and its administrator.
type World struct {
	*devcluster.Cluster

	Client     kubernetes.Interface
	kubeconfig string // of user

	mu    sync.Mutex
	goals []*Goal
}

// New starts a fresh control plane, with watches of what goals are about.
func New(ctx context.Context, options devcluster.Options) (*World, error) {
	cluster, err := devcluster.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	w, err := around(cluster)
	if err == nil {
		err = w.watch(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, cluster.Stop())
	}
	return w, nil
}

func around(cluster *devcluster.Cluster) (*World, error) {
	config := cluster.Config()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = config.ContentType + ",application/json"
	config.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	kubeconfig, _, err := cluster.Identity(user, "system:masters")
	return &World{Cluster: cluster, Client: client, kubeconfig: kubeconfig}, err
}

// Each calls do for 0 to n-1 from as many goroutines as there are writers, in order. The first error ends it.
func Each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	return Parallel(ctx, writers, n, do)
}

// Parallel is Each with so many goroutines.
func Parallel(ctx context.Context, goroutines, n int, do func(ctx context.Context, i int) error) error {
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

// Namespace is the name of one of the measurement's namespaces.
func Namespace(i int) string { return fmt.Sprintf("bench-%05d", i) }

// MakeNamespace creates a namespace.
func (w *World) MakeNamespace(ctx context.Context, name string) error {
	_, err := w.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

// MakeAccount creates a ServiceAccount.
func (w *World) MakeAccount(ctx context.Context, namespace, name string) error {
	_, err := w.Client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	return err
}

// DeleteAccount deletes a ServiceAccount.
func (w *World) DeleteAccount(ctx context.Context, namespace, name string) error {
	return w.Client.CoreV1().ServiceAccounts(namespace).Delete(ctx, name, metav1.DeleteOptions{})
}

// MakeTokenSecret creates a token Secret that is to be filled.
func (w *World) MakeTokenSecret(ctx context.Context, namespace, name, account string) error {
	return w.makeSecret(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: account}},
		Type:       corev1.SecretTypeServiceAccountToken,
	})
}

// MakeForeignSecret creates a Secret that concerns no token controller.
func (w *World) MakeForeignSecret(ctx context.Context, namespace, name string, content []byte) error {
	return w.makeSecret(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{"content": content},
	})
}

func (w *World) makeSecret(ctx context.Context, secret *corev1.Secret) error {
	secret.Labels = map[string]string{madeLabel: "true"}
	_, err := w.Client.CoreV1().Secrets(secret.Namespace).Create(ctx, secret, metav1.CreateOptions{})
	return err
}

// Sleep waits, because time is what is measured.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tokenrecord keeps every token that was ever seen in a Secret of a cluster.
//
// Lifecycle: Start, then End. Concurrency: all methods may be called from any goroutine.
package tokenrecord

import (
	"context"
	"maps"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Record is the record of one cluster.
type Record struct {
	stop func()

	mu     sync.Mutex
	tokens map[string]Owner
}

// Owner is whose token it is, going by its Secret's annotation.
type Owner struct {
	Namespace string
	UID       types.UID
	Secret    types.UID // the last one that held it
}

// Start watches until End is called. Restarts of kube-apiserver may hide a token from it
// that lived for less than that.
func Start(client kubernetes.Interface) *Record {
	r := &Record{tokens: map[string]Owner{}}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "secrets", "",
			fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken))),
		ObjectType: &corev1.Secret{},
		Handler:    cache.ResourceEventHandlerFuncs{AddFunc: r.see, UpdateFunc: func(_, obj any) { r.see(obj) }},
	})
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logr.Discard()))
	var watching sync.WaitGroup
	watching.Go(func() { informer.RunWithContext(ctx) })
	r.stop = func() {
		cancel()
		watching.Wait()
	}
	return r
}

func (r *Record) see(obj any) {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return
	}
	token := string(secret.Data[corev1.ServiceAccountTokenKey])
	if token == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tokens[token] = Owner{secret.Namespace, types.UID(secret.Annotations[corev1.ServiceAccountUIDKey]), secret.UID}
}

// Seen returns all tokens so far.
func (r *Record) Seen() map[string]Owner {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.tokens)
}

// End stops watching and returns the tokens.
func (r *Record) End() []string {
	r.stop()
	var tokens []string
	for token := range r.Seen() {
		tokens = append(tokens, token)
	}
	return tokens
}

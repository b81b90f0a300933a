// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/hex"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// tokenRecord keeps every token that was ever seen in a Secret of a cluster.
type tokenRecord struct {
	stop func()

	mu     sync.Mutex
	tokens map[string]owner
}

// owner is whose token it is, going by its Secret's annotation.
type owner struct {
	namespace string
	uid       types.UID
}

// recordTokens watches until end is called. Restarts of kube-apiserver may hide a
// token from it that lived for less than that.
func recordTokens(client kubernetes.Interface) *tokenRecord {
	r := &tokenRecord{tokens: map[string]owner{}}
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

func (r *tokenRecord) see(obj any) {
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
	r.tokens[token] = owner{secret.Namespace, types.UID(secret.Annotations[corev1.ServiceAccountUIDKey])}
}

// of returns the tokens that were ever seen of an account.
func (r *tokenRecord) of(namespace string, uid types.UID) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var tokens []string
	for token, of := range r.tokens {
		if of == (owner{namespace, uid}) {
			tokens = append(tokens, token)
		}
	}
	return tokens
}

// end stops watching and returns the tokens.
func (r *tokenRecord) end() []string {
	r.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	tokens := make([]string, 0, len(r.tokens))
	for token := range r.tokens {
		tokens = append(tokens, token)
	}
	return tokens
}

// dump is how client-go logs a body that is not text.
func dump(body []byte) string { return hex.Dump(body) }

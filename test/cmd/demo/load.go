// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"sa-controller-manager/test/await"
)

const (
	requestKind = "TokenRequests"
	freshKind   = "API calls with a token just requested"
	boundKind   = "API calls with an older bound token"
	legacyKind  = "API calls with the token of an older Secret"

	// callsPerStep is how many calls of each kind every step waits for.
	callsPerStep = 20
	// callInterval is the time between two calls of a client.
	callInterval = 20 * time.Millisecond
	// callTimeout bounds one call.
	callTimeout = 30 * time.Second
)

func kinds() []string { return []string{requestKind, freshKind, boundKind, legacyKind} }

// load is the calls of clients and their results.
type load struct {
	*rotation

	stop    context.CancelFunc
	clients sync.WaitGroup

	mu           sync.Mutex
	made, failed map[string]int
	firstError   error
	signed       map[key]int // requested tokens, by the key that signed them
}

// startLoad starts a client that requests tokens and uses them at once, one that has a bound token,
// and one that has a legacy token.
func startLoad(d *rotation, bound, legacy string) *load {
	ctx, stop := context.WithCancel(context.Background())
	l := &load{rotation: d, stop: stop, made: map[string]int{}, failed: map[string]int{}, signed: map[key]int{}}
	for _, call := range []func(context.Context){
		l.requestAndUse,
		func(ctx context.Context) { l.count(boundKind, d.use(ctx, bound)) },
		func(ctx context.Context) { l.count(legacyKind, d.use(ctx, legacy)) },
	} {
		l.clients.Go(func() {
			await.Every(ctx, callInterval, func(ctx context.Context, _ int) {
				ctx, cancel := context.WithTimeout(ctx, callTimeout)
				defer cancel()
				call(ctx)
			})
		})
	}
	return l
}

// end returns when every call has ended. It cancels none, so all of them count.
func (l *load) end() {
	l.stop()
	l.clients.Wait()
}

func (l *load) requestAndUse(ctx context.Context) {
	token, err := l.request(ctx)
	var signer key
	if err == nil {
		signer, err = signerOf(token)
	}
	l.count(requestKind, err)
	if err != nil {
		return
	}
	l.mu.Lock()
	l.signed[signer]++
	l.mu.Unlock()
	l.count(freshKind, l.use(ctx, token))
}

func (l *load) count(kind string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made[kind]++
	if err != nil {
		l.failed[kind]++
		if l.firstError == nil {
			l.firstError = fmt.Errorf("%s: %w", kind, err)
		}
	}
}

// awaitMore returns when callsPerStep more calls of each kind have been made.
func (l *load) awaitMore(ctx context.Context) error {
	before := l.calls()
	return await.Poll(ctx, func(context.Context) error {
		made := l.calls()
		if slices.ContainsFunc(kinds(), func(kind string) bool { return made[kind] < before[kind]+callsPerStep }) {
			return fmt.Errorf("the clients have made %v calls, before %v", made, before)
		}
		return nil
	})
}

func (l *load) calls() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.made)
}

// signedBy returns how many of the requested tokens a key has signed.
func (l *load) signedBy(k key) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.signed[k]
}

// judge prints the results once the load has ended. It is an error if a call failed, or if another
// key than those of the rotation has signed.
func (l *load) judge(keys ...key) error {
	l.Linef("\nCalls of the clients")
	for _, kind := range kinds() {
		l.Linef("%8d %-50s %d failed", l.made[kind], kind, l.failed[kind])
	}
	l.Linef("%8d TokenReviews of %d tokens from every step, all accepted", l.reviews, len(l.issued))
	l.Linef("\nKeys that signed the requested tokens")
	others := l.made[requestKind] - l.failed[requestKind]
	for _, k := range keys {
		l.Linef("%8d %s", l.signed[k], k)
		others -= l.signed[k]
	}
	if l.firstError != nil {
		return fmt.Errorf("a call has failed; the first one: %w", l.firstError)
	}
	if others != 0 {
		return fmt.Errorf("%d tokens are signed with other keys than these", others)
	}
	return nil
}

func (d *rotation) request(ctx context.Context) (token string, err error) {
	err = d.call(func(h *host) error {
		token, err = h.request(ctx)
		return err
	})
	return token, err
}

// request asks kube-apiserver for a token of the account.
func (h *host) request(ctx context.Context) (string, error) {
	answer, err := h.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).
		CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("%s: %w", h.name, err)
	}
	return answer.Status.Token, nil
}

func (d *rotation) use(ctx context.Context, token string) error {
	return d.call(func(h *host) error { return h.use(ctx, token) })
}

// use makes a call with a token as its only credential. kube-apiserver caches the identity of a
// token for ten seconds, so it verifies only fresh tokens at every call.
func (h *host) use(ctx context.Context, token string) error {
	client, err := clientWith(h.Cluster, token, rest.NoWarnings{})
	if err != nil {
		return err
	}
	self, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("%s: %w", h.name, err)
	}
	if !strings.HasSuffix(self.Status.UserInfo.Username, ":"+account) {
		return fmt.Errorf("kube-apiserver takes the token for one of %q", self.Status.UserInfo.Username)
	}
	return nil
}

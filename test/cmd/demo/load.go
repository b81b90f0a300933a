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
	rotation *rotation
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu           sync.Mutex
	made, failed map[string]int
	firstError   error
	signed       map[key]int // requested tokens, by the key that signed them
}

// startLoad starts two clients that request a token and use it at once, one that has a bound token,
// and one that has a legacy token.
func startLoad(d *rotation, bound, legacy string) *load {
	ctx, stop := context.WithCancel(context.Background())
	l := &load{rotation: d, stop: stop, made: map[string]int{}, failed: map[string]int{}, signed: map[key]int{}}
	for range 2 {
		l.repeat(ctx, l.requestAndUse)
	}
	l.repeat(ctx, func(ctx context.Context) { l.count(boundKind, d.use(ctx, bound)) })
	l.repeat(ctx, func(ctx context.Context) { l.count(legacyKind, d.use(ctx, legacy)) })
	return l
}

// end returns when every call has ended. It cancels none, so all of them count.
func (l *load) end() {
	l.stop()
	l.running.Wait()
}

func (l *load) repeat(ctx context.Context, call func(context.Context)) {
	l.running.Go(func() {
		ticker := time.NewTicker(callInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
				call(bounded)
				cancel()
			}
		}
	})
}

func (l *load) requestAndUse(ctx context.Context) {
	token, err := l.rotation.request(ctx)
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
	l.count(freshKind, l.rotation.use(ctx, token))
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

// request asks kube-apiserver for a token of the account.
func (d *rotation) request(ctx context.Context) (string, error) {
	answer, err := d.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).
		CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return answer.Status.Token, nil
}

// use makes a call with a token as its only credential. kube-apiserver caches the identity of a
// token for ten seconds, so it verifies only fresh tokens at every call.
func (d *rotation) use(ctx context.Context, token string) error {
	client, err := d.clientWith(token, rest.NoWarnings{})
	if err != nil {
		return err
	}
	self, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if !strings.HasSuffix(self.Status.UserInfo.Username, ":"+account) {
		return fmt.Errorf("kube-apiserver takes the token for one of %q", self.Status.UserInfo.Username)
	}
	return nil
}

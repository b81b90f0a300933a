// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	requestKind = "TokenRequests"
	freshKind   = "API calls with a token just requested"
	boundKind   = "API calls with a bound token from before"
	legacyKind  = "API calls with the token of a Secret from before"

	// callsPerStep is how many calls of each kind a step has to live through.
	callsPerStep = 20
	// pace is that of one client.
	pace = 20 * time.Millisecond
	// callTimeout bounds one call.
	callTimeout = 30 * time.Second
)

func kinds() []string { return []string{requestKind, freshKind, boundKind, legacyKind} }

// load is what the clients of a cluster do all day, and what became of it.
type load struct {
	story   *story
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	grown  chan struct{} // closed at the next call that ends
	made   map[string]int
	failed map[string]int
	first  error       // that a call has failed with
	signed map[key]int // requested tokens, by the key that signed them
}

// startLoad begins: two clients request a token and use it at once, one has a bound token,
// and one a legacy token.
func startLoad(s *story, bound, legacy string) *load {
	ctx, stop := context.WithCancel(context.Background())
	l := &load{
		story: s, stop: stop, grown: make(chan struct{}),
		made: map[string]int{}, failed: map[string]int{}, signed: map[key]int{},
	}
	for range 2 {
		l.every(ctx, func() { l.requestAndUse() })
	}
	l.every(ctx, func() { l.use(boundKind, bound) })
	l.every(ctx, func() { l.use(legacyKind, legacy) })
	return l
}

// end returns when every call has ended. None is cut off, so all of them count.
func (l *load) end() {
	l.stop()
	l.running.Wait()
}

func (l *load) every(ctx context.Context, do func()) {
	l.running.Go(func() {
		ticker := time.NewTicker(pace)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				do()
			}
		}
	})
}

func (l *load) requestAndUse() {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	token, err := l.story.request(ctx)
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
	l.use(freshKind, token)
}

// use asks who the bearer is, which anybody may.
func (l *load) use(kind, token string) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	l.count(kind, l.story.use(ctx, token))
}

func (l *load) count(kind string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made[kind]++
	if err != nil {
		l.failed[kind]++
		if l.first == nil {
			l.first = fmt.Errorf("%s: %w", kind, err)
		}
	}
	close(l.grown)
	l.grown = make(chan struct{})
}

// more returns when n more calls of each kind have been made.
func (l *load) more(ctx context.Context, n int) error {
	goal := map[string]int{}
	made, grown := l.snapshot()
	for _, kind := range kinds() {
		goal[kind] = made[kind] + n
	}
	for slices.ContainsFunc(kinds(), func(kind string) bool { return made[kind] < goal[kind] }) {
		select {
		case <-grown:
			made, grown = l.snapshot()
		case <-ctx.Done():
			return fmt.Errorf("the clients make no progress: %w", context.Cause(ctx))
		}
	}
	return nil
}

// snapshot is what was made, and a channel that is closed once there is more.
func (l *load) snapshot() (map[string]int, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	made := map[string]int{}
	for _, kind := range kinds() {
		made[kind] = l.made[kind]
	}
	return made, l.grown
}

// signedBy is how many of the requested tokens a key has signed.
func (l *load) signedBy(k key) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.signed[k]
}

// request asks kube-apiserver for a token of the account.
func (s *story) request(ctx context.Context) (string, error) {
	answer, err := s.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("request a token: %w", err)
	}
	return answer.Status.Token, nil
}

// use makes a call with nothing but a token. kube-apiserver remembers for ten seconds what
// it has made of one, so it is the fresh ones that are looked at each time.
func (s *story) use(ctx context.Context, token string) error {
	config := rest.AnonymousClientConfig(s.cluster.Config())
	config.BearerToken = token
	config.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client with a token: %w", err)
	}
	self, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if !strings.HasSuffix(self.Status.UserInfo.Username, ":"+account) {
		return fmt.Errorf("kube-apiserver takes the bearer for %q", self.Status.UserInfo.Username)
	}
	return nil
}

// tokenOf is the token of a Secret.
func tokenOf(secret *corev1.Secret) string {
	return string(secret.Data[corev1.ServiceAccountTokenKey])
}

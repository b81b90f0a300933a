// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
)

// tokenUserPace is how often a token is requested.
const tokenUserPace = 200 * time.Millisecond

// tokenUser requests tokens of one account, uses each of them at once, and remembers it.
type tokenUser struct {
	world *World
	uid   types.UID
	stop  context.CancelFunc
	done  chan struct{}

	// Read only after end has returned.
	tokens []string
	found  []checker.Violation
}

// startTokenUser returns once the account is there.
func (w *World) startTokenUser(ctx context.Context) (*tokenUser, error) {
	ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
	defer cancel()
	b := &tokenUser{world: w, done: make(chan struct{})}
	err := workload.Retry(ctx, "get serviceaccount "+workload.DefaultAccount, func(ctx context.Context) error {
		account, err := w.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, workload.DefaultAccount, metav1.GetOptions{})
		b.uid = account.GetUID()
		return err
	})
	if err != nil {
		return nil, err
	}
	bearing, stop := context.WithCancel(context.Background())
	b.stop = stop
	go b.run(bearing)
	return b, nil
}

func (b *tokenUser) end() {
	b.stop()
	<-b.done
}

// run goes on until ctx ends. While kube-apiserver or the signer is away it gets nothing, which
// is no fault; but what it is given is good.
func (b *tokenUser) run(ctx context.Context) {
	defer close(b.done)
	for await.Sleep(ctx, tokenUserPace) {
		limit, cancel := context.WithTimeout(ctx, workload.AttemptTimeout)
		token, err := b.world.requestOnce(limit)
		cancel()
		if err != nil {
			continue
		}
		b.tokens = append(b.tokens, token)
		_ = workload.Retry(ctx, "use a token", func(ctx context.Context) error { // there is another one
			status, err := b.world.review(ctx, token)
			if err == nil {
				b.found = append(b.found, b.question(token).judge(status)...)
			}
			return err
		})
	}
}

func (b *tokenUser) question(token string) question {
	return question{
		token: token, secret: fmt.Sprintf("a TokenRequest, key %s", checker.HeaderOf(token).KeyID), uid: b.uid,
		want: "system:serviceaccount:" + metav1.NamespaceDefault + ":" + workload.DefaultAccount,
	}
}

// bound are questions about all tokens whose key is in the ring: each has to be good still.
func (b *tokenUser) bound(ring *checker.KeyRing) []question {
	var all []question
	for _, token := range b.tokens {
		if ring.Keys[checker.HeaderOf(token).KeyID] != nil {
			all = append(all, b.question(token))
		}
	}
	return all
}

// requestOnce requests a token.
func (w *World) requestOnce(ctx context.Context) (string, error) {
	answer, err := w.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).CreateToken(ctx, workload.DefaultAccount,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return answer.Status.Token, nil
}

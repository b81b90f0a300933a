// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tokenload requests tokens of a cluster all the time, and has kube-apiservers review new and
// old ones, of which they may refuse none.
//
// Lifecycle: New, then Run, which ends with its context. Concurrency: all methods may be called from any goroutine.
package tokenload

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/tokens"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

const (
	// callTimeout bounds one call.
	callTimeout = 30 * time.Second
	// fileTimeout bounds the wait for the ring file after a refusal.
	fileTimeout = 10 * time.Second
)

// ErrLost is the answer of a Party that was lost.
var ErrLost = errors.New("lost")

// ErrUnanswered is the error of a call that got no answer of kube-apiserver: it refused nothing.
var ErrUnanswered = errors.New("no answer")

// answered returns err, as ErrUnanswered unless kube-apiserver has answered with it.
func answered(err error) error {
	if status := apierrors.APIStatus(nil); err == nil || errors.As(err, &status) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnanswered, err)
}

// Token is one that was requested, or is in a Secret.
type Token struct{ KeyID, Text string }

// Of reads which key has signed a token.
func Of(text string) (Token, error) {
	content, err := tokens.Inspect(text)
	return Token{content.KeyID, text}, err
}

// Party is a kube-apiserver.
type Party struct {
	Name string

	client   kubernetes.Interface
	audience string

	mu   sync.RWMutex // held by calls
	lost bool
}

// NewParty returns the kube-apiserver of a cluster.
func NewParty(name string, cluster *devcluster.Cluster) (*Party, error) {
	client, err := cluster.Client()
	return &Party{Name: name, client: client, audience: cluster.Issuer()}, err
}

// Lose ends a party, once the calls to it have ended.
func (p *Party) Lose(end func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost = true
	return end()
}

// Between calls f once the calls to the party have ended, and holds up those that come.
func (p *Party) Between(f func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return f()
}

// Lost reports whether it was.
func (p *Party) Lost() bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.lost
}

// Request asks for a token of the default account.
func (p *Party) Request(ctx context.Context) (Token, error) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.lost {
		return Token{}, ErrLost
	}
	answer, err := p.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).
		CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return Token{}, fmt.Errorf("%s: %w", p.Name, answered(err))
	}
	return Of(answer.Status.Token)
}

var reviews atomic.Int64

// Review asks for an audience that no other review has: kube-apiserver would answer from its cache.
func (p *Party) Review(ctx context.Context, token Token) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.lost {
		return ErrLost
	}
	review, err := p.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token.Text,
			Audiences: []string{p.audience, fmt.Sprintf("review-%d", reviews.Add(1))}},
	}, metav1.CreateOptions{})
	if err = answered(err); err == nil && !review.Status.Authenticated {
		err = errors.New("refused: " + review.Status.Error)
	}
	if err != nil {
		return fmt.Errorf("%s, token of key %s: %w", p.Name, token.KeyID, err)
	}
	return nil
}

// Load requests tokens of the issuers. It keeps one of each key, and has all parties review each new token and then,
// one after the other, those that it keeps.
type Load struct {
	// Issuers are whom tokens are requested of.
	Issuers []*Party

	ringFile string
	parties  []*Party

	mu           sync.Mutex
	kept         []Token
	begun, ended int // rounds
	tally        Tally
}

// Tally is what a Load has seen.
type Tally struct {
	// Requested tokens, and how many requests failed.
	Requested, Failed int
	// Accepted and Refused count reviews, by the name of the party.
	Accepted, Refused map[string]int
	// Unanswered are further calls that got no answer.
	Unanswered int
	// First is the first error, of calls with an answer if there is one.
	First error
	// Keys counts the tokens requested by the ID of the key that has signed them.
	Keys map[string]int
	// Kept is how many tokens are presented still.
	Kept int
}

// New returns a Load that forgets the tokens of the keys that were removed from a ring file: that they are refused is right.
func New(ringFile string, issuers, parties []*Party) *Load {
	return &Load{
		ringFile: ringFile, Issuers: issuers, parties: parties,
		tally: Tally{Accepted: map[string]int{}, Refused: map[string]int{}, Keys: map[string]int{}},
	}
}

// Run makes a round in each interval until ctx ends.
func (l *Load) Run(ctx context.Context, interval time.Duration) {
	await.Every(ctx, interval, func(ctx context.Context, _ int) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		token, err := l.Issuers[rand.N(len(l.Issuers))].Request(ctx)
		if errors.Is(err, ErrLost) {
			return
		}
		present := l.begin(token, err)
		var reviewing sync.WaitGroup
		for _, party := range l.parties {
			reviewing.Go(func() {
				for _, token := range present {
					l.count(ctx, party, token, party.Review(ctx, token))
				}
			})
		}
		reviewing.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ended++
	})
}

// begin returns what to present in this round.
func (l *Load) begin(token Token, err error) (present []Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun++
	if len(l.kept) > 0 {
		present = append(present, l.kept[l.begun%len(l.kept)])
	}
	l.tally.Requested++
	if err != nil {
		if l.tally.note(err) {
			l.tally.Failed++
		}
		return present
	}
	if l.tally.Keys[token.KeyID]++; l.tally.Keys[token.KeyID] == 1 {
		l.kept = append(l.kept, token)
	}
	return append(present, token)
}

func (l *Load) count(ctx context.Context, party *Party, token Token, err error) {
	if errors.Is(err, ErrLost) || err != nil && l.removed(ctx, token) {
		return
	}
	l.countOf(party.Name, err)
}

func (l *Load) countOf(party string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.tally.Accepted[party]++
	} else if l.tally.note(err) {
		l.tally.Refused[party]++
	}
}

// note reports whether the error of a call is an answer.
func (t *Tally) note(err error) (isAnswer bool) {
	isAnswer = !errors.Is(err, ErrUnanswered)
	if !isAnswer {
		t.Unanswered++
	}
	if t.First == nil || isAnswer && errors.Is(t.First, ErrUnanswered) {
		t.First = err
	}
	return isAnswer
}

// Err returns the first error. If no call has failed with an answer, it says what that means.
func (t *Tally) Err() error {
	if !errors.Is(t.First, ErrUnanswered) {
		return t.First
	}
	return fmt.Errorf("no token was refused, but %d calls got no answer within %s: this machine is too busy; the first: %w",
		t.Unanswered, callTimeout, t.First)
}

// removed reports whether the key of a token was removed from the ring file. A revocation is published before the file
// is changed, so a refusal may come first.
func (l *Load) removed(ctx context.Context, token Token) bool {
	ctx, cancel := context.WithTimeout(ctx, fileTimeout)
	defer cancel()
	if err := await.Poll(ctx, func(context.Context) error {
		state, err := ring.At(l.ringFile).Read()
		gone := slices.Concat(state.Removed, state.Revoked)
		if err == nil && !slices.ContainsFunc(gone, func(key ring.Removed) bool { return key.ID == token.KeyID }) {
			err = errors.New("it was not removed")
		}
		return err
	}); err != nil {
		return false
	}
	l.Forget(token.KeyID)
	return true
}

// Keep has a token presented.
func (l *Load) Keep(token Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = append(l.kept, token)
}

// Forget ends that for the tokens of a key, and returns them.
func (l *Load) Forget(keyID string) (forgotten []Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = slices.DeleteFunc(l.kept, func(token Token) bool {
		if token.KeyID == keyID {
			forgotten = append(forgotten, token)
		}
		return token.KeyID == keyID
	})
	return forgotten
}

// Tally returns what was seen so far.
func (l *Load) Tally() Tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tally
	t.Accepted, t.Refused, t.Keys, t.Kept = maps.Clone(t.Accepted), maps.Clone(t.Refused), maps.Clone(t.Keys), len(l.kept)
	return t
}

// AwaitRounds returns when so many rounds have begun after the call, and have ended.
func (l *Load) AwaitRounds(ctx context.Context, n int) error {
	l.mu.Lock()
	want := l.begun + n
	l.mu.Unlock()
	return await.Poll(ctx, func(context.Context) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.ended < want {
			return fmt.Errorf("%d rounds have ended, want %d", l.ended, want)
		}
		return nil
	})
}

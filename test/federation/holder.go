// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package federation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sa-controller-manager/tokens"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

// callTimeout bounds one call.
const callTimeout = 30 * time.Second

// Party is a kube-apiserver that judges tokens.
type Party struct {
	Name string

	client   kubernetes.Interface
	audience string
}

// NewParty returns the kube-apiserver of a cluster.
func NewParty(name string, cluster *devcluster.Cluster) (Party, error) {
	client, err := cluster.Client()
	return Party{name, client, cluster.Issuer()}, err
}

// Holder requests tokens of the first party all the time. It keeps one of each key, and has all
// parties judge each new token and those that it keeps.
type Holder struct {
	// pruned reports whether a key has left the ring: then its token is forgotten, and that it is
	// refused is right.
	pruned func(keyID string) bool

	parties []Party

	mu                sync.Mutex
	kept              map[string]string // by key ID
	seen              []string          // key IDs, in the order of their first token
	begun, ended      int               // rounds
	failed            int               // requests
	accepted, refused map[string]int    // by party
	first             error             // refusal
}

func newHolder(pruned func(keyID string) bool, parties ...Party) *Holder {
	return &Holder{pruned: pruned, parties: parties, kept: map[string]string{}, accepted: map[string]int{}, refused: map[string]int{}}
}

// Run makes a round in each interval until ctx ends.
func (h *Holder) Run(ctx context.Context, interval time.Duration) {
	await.Every(ctx, interval, func(ctx context.Context, _ int) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		h.round(ctx)
	})
}

func (h *Holder) round(ctx context.Context) {
	token, keyID, err := h.request(ctx)
	round, present := h.begin(token, keyID, err)
	var judges sync.WaitGroup
	for _, party := range h.parties {
		judges.Go(func() {
			for _, one := range present {
				h.count(party, one.keyID, party.review(ctx, one.token, fmt.Sprintf("round-%d", round)))
			}
		})
	}
	judges.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended++
}

type presented struct{ keyID, token string }

// begin returns what to present in this round: the tokens kept, and the new one if there is one.
func (h *Holder) begin(token, keyID string, err error) (round int, present []presented) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.begun++
	for keyID, token := range h.kept {
		present = append(present, presented{keyID, token})
	}
	switch {
	case err != nil:
		h.failed++
		return h.begun, present
	case !slices.Contains(h.seen, keyID):
		h.kept[keyID] = token
		h.seen = append(h.seen, keyID)
	}
	return h.begun, append(present, presented{keyID, token})
}

func (h *Holder) request(ctx context.Context) (token, keyID string, err error) {
	answer, err := h.parties[0].client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).
		CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", "", err
	}
	content, err := tokens.Inspect(answer.Status.Token)
	return answer.Status.Token, content.KeyID, err
}

// review asks for an audience that no other round has: kube-apiserver would answer from its cache.
func (p Party) review(ctx context.Context, token, audience string) error {
	review, err := p.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{p.audience, audience}},
	}, metav1.CreateOptions{})
	if err == nil && !review.Status.Authenticated {
		err = errors.New("refused: " + review.Status.Error)
	}
	return err
}

func (h *Holder) count(party Party, keyID string, err error) {
	pruned := err != nil && h.pruned(keyID)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		h.accepted[party.Name]++
	case pruned:
		delete(h.kept, keyID)
	default:
		h.refused[party.Name]++
		if h.first == nil {
			h.first = fmt.Errorf("%s, token of key %s: %w", party.Name, keyID, err)
		}
	}
}

// Tally is what a Holder has seen.
type Tally struct {
	// Rounds that were made, and in how many of them no token was issued.
	Rounds, Failed int
	// Accepted and Refused count judgements, by the name of the party.
	Accepted, Refused map[string]int
	// FirstRefusal says which it was.
	FirstRefusal error
	// Keys has the IDs of the keys that have signed, in order, and Kept those of the tokens that are
	// presented still.
	Keys, Kept []string
}

// Tally returns what was seen so far.
func (h *Holder) Tally() Tally {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Tally{
		h.ended, h.failed, maps.Clone(h.accepted), maps.Clone(h.refused), h.first,
		slices.Clone(h.seen), slices.Collect(maps.Keys(h.kept)),
	}
}

// AwaitRounds returns when so many rounds have begun after the call, and have ended.
func (h *Holder) AwaitRounds(ctx context.Context, n int) error {
	h.mu.Lock()
	want := h.begun + n
	h.mu.Unlock()
	return await.Poll(ctx, func(context.Context) error {
		if ended := h.Tally().Rounds; ended < want {
			return fmt.Errorf("%d rounds have ended, want %d", ended, want)
		}
		return nil
	})
}

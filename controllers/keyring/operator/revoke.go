// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/keyring/consistency"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
)

// nudgeInterval is the interval at which kube-apiservers are asked whether they still accept a removed
// key. Each time a new token is used: kube-apiserver caches the review of a token for 10 s.
const nudgeInterval = 500 * time.Millisecond

// Revoke removes a key from the ring, and returns when every kube-apiserver refuses its tokens.
// confirm is called with what the step breaks, and an error of it ends the step; nil confirms.
func (o *Operator) Revoke(ctx context.Context, id string, confirm func(ctx context.Context, warning string) error) ([]Pruned, error) {
	state, err := o.read()
	if err != nil {
		return nil, err
	}
	key, _ := state.Key(id)
	next, err := ring.Revoke(state, id, o.Clock.Now(), o.Policy)
	if err != nil {
		return nil, err
	}
	if confirm != nil {
		affected, err := o.affectedBy(ctx, state, key)
		if err != nil {
			return nil, err
		}
		if err := confirm(ctx, fmt.Sprintf("every token signed with key %s will be refused, %s", id, affected)); err != nil {
			return nil, err
		}
	}
	if err := o.File.Update(state.Generation, func(ring.State) (ring.State, error) { return next, nil }); err != nil {
		return nil, err
	}
	return []Pruned{{KeyID: id, Pruned: true, Destroy: destroy(key)}}, o.AwaitRefused(ctx, key)
}

// destroy says what is left to do by hand for a key that another process has, "" for any other.
func destroy(key ring.Key) string {
	name, err := signing.ParseSigner(key.Signer)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("By hand:    %s has the private half still: destroy it there. With sa-kms-signer it is the object "+
		"that uri in %s.yaml of its --keys-dir names; then remove that file", key.Signer, name)
}

// affectedBy says which tokens are signed with a key.
func (o *Operator) affectedBy(ctx context.Context, state ring.State, key ring.Key) (string, error) {
	if key.Role == signing.Next {
		return "and none was signed with it here", nil
	}
	if o.Cluster == nil {
		return "those of Secrets and of Pods (--kubeconfig counts them)", nil
	}
	uses, err := o.Cluster.Uses(ctx, state.Ring())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("those of %d Secrets, and those of Pods that kubelets have not renewed since the key was retired",
		uses.Count(key.ID)), nil
}

// AwaitRefused makes every kube-apiserver with an external signer fetch the key set immediately, and
// returns when each refuses a new token of the removed key. It waits for a signer whose ring still
// has the key until the ring is imported there.
func (o *Operator) AwaitRefused(ctx context.Context, key ring.Key) error {
	private := key.Private
	if o.Cluster == nil || private == nil {
		return nil
	}
	rings, err := consistency.LivePublishedRings(ctx, o.Cluster.Client)
	if err != nil {
		return err
	}
	signer := false
	for _, ring := range rings {
		signer = signer || ring.Signer
	}
	if !signer {
		if o.Progress != nil {
			o.Progress(fmt.Sprintf("key %s has left the ring; kube-apiserver has key files of its own: "+
				"bring them up to date and restart it on every node", key.ID), 0)
		}
		return nil
	}
	if err := o.Cluster.Find(ctx); err != nil {
		return fmt.Errorf("key %s has left the ring: %w: name each of them with --apiserver", key.ID, err)
	}
	for {
		waiting, err := o.Cluster.stillAccept(ctx, private)
		if err != nil {
			return fmt.Errorf("key %s has left the ring, and it cannot be seen whether kube-apiserver refuses it: %w", key.ID, err)
		}
		if len(waiting) == 0 {
			return nil
		}
		if o.Progress != nil {
			o.Progress(fmt.Sprintf("key %s is still accepted by %s; the ring must be there too (keys import)",
				key.ID, strings.Join(waiting, ", ")), 0)
		}
		timer := o.Clock.NewTimer(nudgeInterval)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("key %s has left the ring and is still accepted by %s: bring the ring there (keys import)",
				key.ID, strings.Join(waiting, ", "))
		}
	}
}

// stillAccept returns the kube-apiservers that do not refuse a new token of the key. It makes each of
// them fetch the key set first. The error says that the key does not sign any more.
func (c *Cluster) stillAccept(ctx context.Context, key *signing.PrivateKey) (accept []string, err error) {
	account, err := c.account(ctx)
	if err != nil {
		return []string{err.Error()}, nil //nolint:nilerr // it is asked again
	}
	for _, server := range c.all() {
		nudge(ctx, server)
		err := keyprobe.Prove(ctx, server.Client, c.Issuer, account, key)
		if _, away := errors.AsType[*signing.UnavailableError](err); away {
			return nil, err
		}
		if !keyprobe.IsRefusal(err) {
			accept = append(accept, server.URL)
		}
	}
	return accept, nil
}

// nudge presents a token with an unknown key ID, so that kube-apiserver fetches the key set
// immediately (pkg/serviceaccount/externaljwt/plugin/keycache.go). The answer does not matter.
func nudge(ctx context.Context, server APIServer) {
	encode := base64.RawURLEncoding.EncodeToString
	header := encode([]byte(`{"alg":"RS256","kid":"unknown-` + utilrand.String(20) + `"}`))
	token := header + "." + encode([]byte(`{"iss":"kubernetes/serviceaccount"}`)) + "." + encode(make([]byte, 256))
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	_, _ = server.Client.AuthenticationV1().TokenReviews().Create(ctx, review, metav1.CreateOptions{})
}

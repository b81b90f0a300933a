// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"

	"sa-controller-manager/controllers/keyring/consistency"
	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
)

const (
	// nudgeInterval is the interval at which kube-apiservers are asked whether they still have a revoked key,
	// and revokeWait how long those are waited for that have an external signer.
	nudgeInterval = 500 * time.Millisecond
	revokeWait    = 30 * time.Second
)

// Revoke takes keys out of every ring for good, whatever needs them, and returns when no kube-apiserver
// has them. The file is changed first, and nothing is asked before. confirm is called with what the step
// breaks, and an error of it ends the step; nil confirms. Hosts of without are gone for good. The notes say
// what is left to do.
func (o *Operator) Revoke(ctx context.Context, ids []string, confirm func(ctx context.Context, warning string) error,
	without ...string) (notes []string, err error) {
	state, err := o.read()
	if err != nil {
		return nil, err
	}
	after, err := o.revoked(ctx, state, ids)
	if err != nil && !ring.IsDone(err) {
		return nil, err
	}
	if err == nil {
		if confirm != nil {
			if err := confirm(ctx, o.affectedBy(ctx, state, ids)); err != nil {
				return nil, err
			}
		}
		if err := o.File.Update(state.Generation, func(ring.State) (ring.State, error) { return after, nil }); err != nil {
			return nil, err
		}
		for _, key := range state.Keys {
			if slices.Contains(ids, key.ID) && key.Signer != "" {
				notes = append(notes, fmt.Sprintf("%s has the private half of key %s still: destroy it there", key.Signer, key.ID))
			}
		}
		state = after
	}
	if o.File.IsDryRun() {
		return notes, nil // nothing is published, so no kube-apiserver begins to refuse a key
	}
	removed := slices.DeleteFunc(slices.Clone(state.Removed), func(gone ring.Removed) bool { return !slices.Contains(ids, gone.ID) })
	left, err := o.awaitRefused(ctx, removed, without)
	if err != nil {
		err = fmt.Errorf("revoked in the ring of this host, but: %w", err)
	}
	return append(notes, left...), err
}

// revoked returns the ring without the keys. What they leave empty gets a new key of the same kind, unless
// another process would have to have it.
func (o *Operator) revoked(ctx context.Context, state ring.State, ids []string) (ring.State, error) {
	var fresh [2]*ring.Key
	for i := range fresh {
		key, err := o.make(ctx, Successor{None: state.Active().Kind() == ""}, state.Active())
		if err != nil {
			return ring.State{}, err
		}
		fresh[i] = key
	}
	return ring.Revoke(state, ids, fresh[0], fresh[1], o.Clock.Now())
}

// affectedBy says which tokens are signed with keys.
func (o *Operator) affectedBy(ctx context.Context, state ring.State, ids []string) string {
	warning := fmt.Sprintf("every token signed with %q will be refused", ids)
	if o.Cluster == nil {
		return warning
	}
	uses, err := o.Cluster.Uses(ctx, state.Ring())
	if err != nil {
		return warning
	}
	count := 0
	for _, id := range ids {
		count += uses.Count(id)
	}
	return fmt.Sprintf("%s, those of %d Secrets among them, until they are filled again", warning, count)
}

// awaitRefused publishes the revocation, makes every kube-apiserver with an external signer fetch the key set
// immediately, and returns when none has the keys. It asks for what each publishes, because the private
// half may be gone. A kube-apiserver with key files has them until it is restarted: the error names it.
func (o *Operator) awaitRefused(ctx context.Context, removed []ring.Removed, without []string) (notes []string, err error) {
	if o.Cluster == nil {
		return nil, errors.New("it is not known whether a kube-apiserver still accepts them: give --kubeconfig")
	}
	var published consistency.Published
	err = consistency.Edit(ctx, o.Cluster.Client, func(p *consistency.Published) error {
		p.Revoke(removed)
		published = *p
		return nil
	})
	if err == nil {
		err = o.Cluster.Find(ctx, without...)
	}
	if err != nil {
		return nil, err
	}
	live := published.Live(o.Clock.Now())
	signer := slices.ContainsFunc(live, func(line consistency.Line) bool { return line.Signer })
	notes = []string{"relying parties outside of the cluster accept them until they read the key set again, those that read " +
		"kube-apiserver's for up to an hour; and kube-apiserver accepts a token that it has just seen for 10 s"}
	for _, line := range live {
		if line.Host != o.Host && slices.ContainsFunc(removed, func(gone ring.Removed) bool { return line.Keys[gone.ID] != "" }) {
			notes = append(notes, "the file of host "+line.Host+" has them, and a restart there accepts them again: bring the ring there")
		}
	}
	for begun := o.Clock.Now(); ; {
		have := o.Cluster.stillHave(ctx, removed)
		if len(have) == 0 {
			return notes, nil
		}
		if !signer || o.Clock.Since(begun) > revokeWait || !o.sleep(ctx, nudgeInterval) {
			return notes, fmt.Errorf("still accepted by %s: with key files, bring the ring there, write them (keys export --kubeadm) and "+
				"restart it; with the external signer, start our process on that host; then run the command again", strings.Join(have, ", "))
		}
		o.progress("still accepted by "+strings.Join(have, ", "), 0)
	}
}

// stillHave returns the kube-apiservers that publish one of the keys. It makes each of them fetch the key
// set first.
func (c *Cluster) stillHave(ctx context.Context, removed []ring.Removed) (have []string) {
	for _, server := range c.all() {
		nudge(ctx, server)
		keys, err := PublishedBy(ctx, apiservers.Getter(server.Client))
		switch {
		case err != nil:
			have = append(have, fmt.Sprintf("%s (%v)", server.URL, err))
		case slices.ContainsFunc(keys, func(key signing.PublicKey) bool {
			return slices.ContainsFunc(removed, func(gone ring.Removed) bool { return gone.Is(key) })
		}):
			have = append(have, server.URL)
		}
	}
	return have
}

// PublishedBy reads the keys that a kube-apiserver publishes. get asks it for a path.
func PublishedBy(ctx context.Context, get func(ctx context.Context, path string) ([]byte, error)) ([]signing.PublicKey, error) {
	document, err := get(ctx, signing.JWKSPath)
	if err != nil {
		return nil, fmt.Errorf("read kube-apiserver's keys at %s: %w", signing.JWKSPath, err)
	}
	keys, err := signing.ParseJWKS(document)
	if err != nil {
		return nil, fmt.Errorf("read kube-apiserver's keys at %s: %w", signing.JWKSPath, err)
	}
	return keys, nil
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

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// issue returns a new bound token and a new legacy token, which the given key must have signed.
func (d *rotation) issue(ctx context.Context, signer key) (bound, legacy string, err error) {
	if bound, err = d.request(ctx); err != nil {
		return "", "", err
	}
	name := fmt.Sprintf("token-%d", len(d.issued))
	if err := d.createTokenSecret(ctx, metav1.NamespaceDefault, name, account, false); err != nil {
		return "", "", err
	}
	secret, err := d.awaitFilled(ctx, metav1.NamespaceDefault, name)
	if err != nil {
		return "", "", err
	}
	legacy = tokenOf(secret)
	for name, token := range map[string]string{"a requested token": bound, "secret " + name: legacy} {
		got, err := signerOf(token)
		if err != nil {
			return "", "", err
		}
		if got != signer {
			return "", "", fmt.Errorf("%s is signed with %s, want %s", name, got, signer)
		}
		d.issued = append(d.issued, issuedToken{name, token, signer})
	}
	d.Notef("signed", "a requested token and secret %s/%s, with %s", metav1.NamespaceDefault, name, signer)
	return bound, legacy, nil
}

// signerOf returns the key that the header of a token names.
func signerOf(token string) (key, error) {
	header, _, err := decodeToken(token)
	id, _ := header["kid"].(string)
	algorithm, _ := header["alg"].(string)
	if err == nil && id == "" {
		err = errors.New("a token without a key ID")
	}
	return key{id, algorithm}, err
}

// reviewAll has kube-apiserver review every token of the demonstration. It caches its answer for a
// token and its audiences for ten seconds, so each review names another audience.
func (d *rotation) reviewAll(ctx context.Context) error {
	for _, issued := range d.issued {
		review, err := d.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{
				Token:     issued.token,
				Audiences: []string{d.cluster.Issuer(), fmt.Sprintf("review-%d", d.reviews)},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("review %s of %s: %w", issued.name, issued.signer, err)
		}
		if !review.Status.Authenticated {
			return fmt.Errorf("%s of %s is refused: %s", issued.name, issued.signer, review.Status.Error)
		}
		d.reviews++
	}
	d.Notef("reviewed", "%d tokens, of all keys that have signed: all accepted", len(d.issued))
	return nil
}

// startTimes returns the start time of each process, which differs after a restart.
func (d *rotation) startTimes(ctx context.Context) (map[string]float64, error) {
	const started = "process_start_time_seconds"
	server, err := d.cluster.APIServerMetrics(ctx)
	if err != nil {
		return nil, err
	}
	manager, err := d.manager.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	if !server.Has(started, nil) || !manager.Has(started, nil) {
		return nil, errors.New("no metric " + started)
	}
	return map[string]float64{"kube-apiserver": server.Sum(started, nil), "sa-controller-manager": manager.Sum(started, nil)}, nil
}

// checkWhole verifies what no single step can: no call failed, no other key signed, and no process
// was restarted.
func (d *rotation) checkWhole(ctx context.Context) error {
	l := d.load
	if l.firstError != nil {
		return fmt.Errorf("a call has failed; the first one: %w", l.firstError)
	}
	known := l.signed[d.first] + l.signed[d.second] + l.signed[d.third]
	if known != l.made[requestKind] {
		return fmt.Errorf("%d tokens are signed with other keys than these", l.made[requestKind]-known)
	}
	now, err := d.startTimes(ctx)
	if err != nil {
		return err
	}
	d.Linef("")
	for _, name := range []string{"kube-apiserver", "sa-controller-manager"} {
		if now[name] != d.started[name] {
			return errors.New(name + " was restarted")
		}
		d.Linef("%s is the same process as at the beginning.", name)
	}
	return nil
}

// report prints the results of the calls, and which key signed how many tokens.
func (d *rotation) report() {
	l := d.load
	d.Linef("\nCalls of the clients")
	made, failed := 0, 0
	for _, kind := range kinds() {
		d.Linef("%8d %-50s %d failed", l.made[kind], kind, l.failed[kind])
		made, failed = made+l.made[kind], failed+l.failed[kind]
	}
	d.Linef("%8d %-50s %d failed", made, "requests", failed)
	d.Linef("%8d TokenReviews of %d tokens from every step, all accepted", d.reviews, len(d.issued))
	d.Linef("\nKeys that signed the requested tokens")
	for _, k := range []key{d.first, d.second, d.third} {
		d.Linef("%8d %s", l.signed[k], k)
	}
}

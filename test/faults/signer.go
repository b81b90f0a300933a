// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	externaljwtv1 "k8s.io/externaljwt/apis/v1"
	"sa-controller-manager/signing/signertest"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/overload"
	"sa-controller-manager/test/faults/workload"
)

const (
	// signerPace is that of the caller the well-behaved client: 20 signatures a second.
	signerPace = 50 * time.Millisecond
	// keysEvery is how many signatures it asks for between two looks at the keys.
	keysEvery = 20
)

// SignerLoad has broken clients attack the external signer's socket of an ordinary
// build, as Load does on the webhook, while one client calls it as kube-apiserver does: over
// one connection, which it opened before the others came.
//
// kube-apiserver itself is not asked: it would add its own waits to what is measured.
func (w *World) SignerLoad(ctx context.Context, binary devcluster.Binary) (checker.Outcome, string, error) {
	dir, err := signerDirectory()
	if err != nil {
		return checker.Outcome{}, "", err
	}
	defer func() { _ = os.RemoveAll(dir) }() // of no use if it stays
	socket := filepath.Join(dir, "signer.sock")
	ring, err := w.oneKey()
	if err != nil {
		return checker.Outcome{}, "", err
	}
	var client externaljwtv1.ExternalJWTSignerClient
	return w.underLoad(ctx, binary, load{
		flags:   []string{"--external-signer-socket=" + socket},
		network: "unix", address: socket, clients: overload.SignerClients(w.boundPayload),
		model: workload.Model{}, what: "call of the signer", promise: 8,
		before: func(ctx context.Context) error {
			remote, err := signertest.Connect(socket)
			if err != nil {
				return err
			}
			client = externaljwtv1.NewExternalJWTSignerClient(remote.Conn())
			_, err = w.signOnce(ctx, client, ring.Verify)
			return err
		},
		ask: func(ctx context.Context) asked { return w.askSigner(ctx, client, ring.Verify) },
	})
}

// signerDirectory is one that another user of root's group can pass, so that it is the
// server that has to refuse it. It is not the cluster's, whose path may be too long.
func signerDirectory() (string, error) {
	dir, err := os.MkdirTemp("", "sacm-signer-")
	if err != nil {
		return "", fmt.Errorf("make a directory: %w", err)
	}
	return dir, os.Chmod(dir, 0o710) //nolint:gosec // G302: a directory is of no use without x
}

// askSigner asks for signatures at a steady rate, and for the keys as kube-apiserver does
// when it meets an unknown one.
func (w *World) askSigner(ctx context.Context, client externaljwtv1.ExternalJWTSignerClient, verify func(token string) error) asked {
	var mu sync.Mutex
	var failed []error
	made := asked{tokens: map[string]bool{}}
	await.Every(ctx, signerPace, func(ctx context.Context, i int) {
		limit, cancel := context.WithTimeout(ctx, overload.CallerTimeout)
		defer cancel()
		begun := time.Now()
		var token string
		var err error
		if i%keysEvery == 0 {
			_, err = client.FetchKeys(limit, &externaljwtv1.FetchKeysRequest{})
		} else {
			token, err = w.signOnce(limit, client, verify)
		}
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed = append(failed, err)
			return
		}
		made.took = append(made.took, time.Since(begun))
		if token != "" {
			made.tokens[token] = true
		}
	})
	if len(failed) > 0 {
		made.found = append(made.found, checker.Violated(8, "under load on the signer's socket %d of %d calls in order were not answered, "+
			"the first: %v", len(failed), len(failed)+len(made.took), failed[0]))
	}
	if len(made.tokens) == 0 {
		made.found = append(made.found, checker.Violated(8, "under load on the signer's socket no signature was made"))
	}
	return made
}

// signOnce has a token signed and verifies it.
func (w *World) signOnce(ctx context.Context, client externaljwtv1.ExternalJWTSignerClient,
	verify func(token string) error) (string, error) {
	payload := w.boundPayload()
	answer, err := client.Sign(ctx, &externaljwtv1.SignJWTRequest{Claims: payload})
	if err != nil {
		return "", err
	}
	token := answer.GetHeader() + "." + payload + "." + answer.GetSignature()
	return token, verify(token)
}

// boundPayload is the payload of a bound token for an hour, as kube-apiserver sends it.
func (w *World) boundPayload() string {
	now := time.Now()
	return signertest.Encode(map[string]any{
		"aud": []string{w.cluster.Issuer()}, "iss": w.cluster.Issuer(),
		"exp": now.Add(time.Hour).Unix(), "iat": now.Unix(), "nbf": now.Unix(),
		"jti": uuid.NewUUID(),
		"sub": "system:serviceaccount:default:default",
		"kubernetes.io": map[string]any{
			"namespace":      "default",
			"serviceaccount": map[string]any{"name": "default", "uid": "0b1d7f0c-41fb-4b5a-9c62-34e0b4a3e7a9"},
		},
	})
}

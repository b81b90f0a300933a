// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"slices"
)

// garbage is never the same twice: a replica that sees nothing of the good content in
// between has nothing new to say of the same bad one.
func garbage([]byte) []byte { return []byte("this is no PEM: " + rand.Text() + "\n") }

func truncated(good []byte) []byte { return append(slices.Clone(good[:len(good)/2]), rand.Text()...) }

// another is as good, and not the same bytes: what is around its PEM is no part of a key.
func another(good []byte) []byte {
	block, _ := pem.Decode(good)
	return append(pem.EncodeToMemory(block), "\n"+rand.Text()+"\n"...)
}

// spoilKey replaces the signing key of one replica by a bad one. The replica says so, goes
// on with what it had, and says that it takes the good one when that is back.
func spoilKey(how func(good []byte) []byte) Inject {
	return func(ctx context.Context, w *World, fault Planned) (func(context.Context) error, error) {
		spoil := func(r *Replica, good contents) error { return r.replace(keyFile, how(good[keyFile]), 0o600) }
		return w.refuses(ctx, fault, refusal{flags: []string{keyFlag}, spoil: spoil, repair: restoreKey})
	}
}

// restoreKey puts another file with the same key in its place: that is a change to tell of.
func restoreKey(ctx context.Context, r *Replica, t *term, good contents) error {
	before, err := reloads(ctx, t, keyFlag, resultAccepted)
	if err != nil {
		return err
	}
	if err := r.renew(good.with(contents{keyFile: another(good[keyFile])})); err != nil {
		return err
	}
	return awaitReload(ctx, t, keyFlag, resultAccepted, before)
}

// spoilCA does it to the root CA. A CA is published with what is around its PEM, so that only the
// very same file will do, and nothing reports that this one is in use again: what was published in
// the end is judged.
func spoilCA(how func(good []byte) []byte) Inject {
	return func(ctx context.Context, w *World, fault Planned) (func(context.Context) error, error) {
		return w.refuses(ctx, fault, refusal{
			flags:  []string{caFlag},
			spoil:  func(r *Replica, good contents) error { return r.replace(caFile, how(good[caFile]), 0o600) },
			repair: func(_ context.Context, r *Replica, _ *term, _ contents) error { return r.restore(caFile) },
		})
	}
}

// swapBySymlink changes all files in one step, as the kubelet does for a mounted Secret.
func swapBySymlink(ctx context.Context, w *World, fault Planned) (func(context.Context) error, error) {
	return w.refuses(ctx, fault, refusal{
		flags: []string{keyFlag, caFlag},
		spoil: func(r *Replica, good contents) error {
			bad := contents{}
			for name := range good {
				bad[name] = garbage(nil)
			}
			return r.renew(bad)
		},
		repair: func(ctx context.Context, r *Replica, t *term, good contents) error {
			return errors.Join(restoreKey(ctx, r, t, good), replaceCertificate(ctx, r, t))
		},
	})
}

// unreadableKey takes away the right to read.
func unreadableKey(ctx context.Context, w *World, fault Planned) (func(context.Context) error, error) {
	return w.refuses(ctx, fault, refusal{
		flags:  []string{keyFlag},
		spoil:  func(r *Replica, good contents) error { return r.replace(keyFile, good[keyFile], 0) },
		repair: restoreKey,
	})
}

// replaceCertificate puts a new pair in the place of the one that is there.
func replaceCertificate(ctx context.Context, r *Replica, t *term) error {
	certificate, key, err := newCertificate()
	if err != nil {
		return err
	}
	now, err := r.contents()
	if err != nil {
		return err
	}
	if err := r.renew(now.with(contents{certFile: certificate, certKeyFile: key})); err != nil {
		return err
	}
	return awaitShown(ctx, t, certificate)
}

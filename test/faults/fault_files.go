// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

// refusalLimit is how long a replica may take to say that a file is no good. Where the
// file system tells of no changes it looks every ten seconds.
const refusalLimit = 20 * time.Second

// garbage is never the same twice: a replica that sees nothing of the good content in
// between has nothing new to say of the same bad one.
func garbage([]byte) []byte { return []byte("this is no PEM: " + rand.Text() + "\n") }

func truncated(good []byte) []byte { return append(slices.Clone(good[:len(good)/2]), rand.Text()...) }

// spoil replaces a file of one replica by a bad one. The replica says so, goes on with
// what it had, and takes the good one when that is back.
func spoil(name string, how func(good []byte) []byte) Inject {
	return func(ctx context.Context, w *World, fault Planned) (func(context.Context) error, error) {
		r := w.all()[fault.Replica]
		return w.refuses(ctx, r, fault.Kind, func() error {
			good, err := os.ReadFile(r.path(name))
			if err != nil {
				return err
			}
			return r.replace(name, how(good), 0o600)
		}, func() error { return r.restore(name) })
	}
}

// spoilCertificate does it to what the secure port serves with, whose reading is not ours
// and is not counted: it has to go on to serve.
func spoilCertificate(_ context.Context, w *World, fault Planned) (func(context.Context) error, error) {
	r := w.all()[fault.Replica]
	w.files.Lock()
	if err := r.replace(certFile, garbage(nil), 0o600); err != nil {
		w.files.Unlock()
		return nil, err
	}
	return func(ctx context.Context) error {
		defer w.files.Unlock()
		if t := r.now(); !gone(t) && !r.isPaused() {
			if _, err := t.manager.Metrics(ctx); err != nil && !gone(t) {
				w.report(violated(7, "%s of %s: it serves no more: %v", fault.Kind, r.name, err))
			}
		}
		return r.restore(certFile)
	}, nil
}

// swapBySymlink changes all files in one step, as the kubelet does for a mounted Secret.
func swapBySymlink(ctx context.Context, w *World, fault Planned) (func(context.Context) error, error) {
	r := w.all()[fault.Replica]
	bad := garbage(nil)
	err := r.writeContent("..bad", map[string][]byte{keyFile: bad, caFile: bad, certFile: bad, certKeyFile: bad})
	if err != nil {
		return nil, err
	}
	return w.refuses(ctx, r, fault.Kind, func() error { return r.point("..bad") }, func() error { return r.point("..good") })
}

// unreadableKey takes away the right to read. Root reads all the same, so then nothing is
// to be said about it.
func unreadableKey(ctx context.Context, w *World, fault Planned) (func(context.Context) error, error) {
	r := w.all()[fault.Replica]
	good, err := os.ReadFile(r.path(keyFile))
	if err != nil {
		return nil, err
	}
	change := func() error { return r.replace(keyFile, good, 0) }
	restore := func() error { return r.restore(keyFile) }
	if os.Geteuid() != 0 {
		return w.refuses(ctx, r, fault.Kind, change, restore)
	}
	w.files.Lock()
	if err := change(); err != nil {
		w.files.Unlock()
		return nil, err
	}
	return func(context.Context) error {
		defer w.files.Unlock()
		return restore()
	}, nil
}

// refuses makes a change that the replica must refuse, and has it say so before the change
// is taken back. The same process has to be there then.
func (w *World) refuses(ctx context.Context, r *Replica, kind Kind, change, restore func() error) (func(context.Context) error, error) {
	w.files.Lock()
	t := r.now()
	before, err := refusals(ctx, t)
	if err != nil {
		w.files.Unlock()
		return nil, errSkipped
	}
	if err := change(); err != nil {
		w.files.Unlock()
		return nil, err
	}
	return func(ctx context.Context) error {
		defer w.files.Unlock()
		limit, cancel := context.WithTimeout(ctx, refusalLimit)
		defer cancel()
		err := await.Poll(limit, func(ctx context.Context) error {
			if gone(t) {
				return nil // another fault has ended it
			}
			if now, err := refusals(ctx, t); err != nil || now > before {
				return err
			}
			return errors.New("no refusal is counted")
		})
		if err != nil {
			w.report(violated(7, "%s of %s: %v", kind, r.name, err))
		}
		return restore()
	}, nil
}

// errSkipped: the process that a fault is for is not there.
var errSkipped = errors.New("skipped")

func refusals(ctx context.Context, t *term) (float64, error) {
	metrics, err := t.manager.Metrics(ctx)
	if err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	return metrics.Sum("sacm_file_reloads_total", devcluster.Labels{"result": "refused"}), nil
}

func gone(t *term) bool {
	select {
	case <-t.manager.Done():
		return true
	default:
		return false
	}
}

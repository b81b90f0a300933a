// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults/checker"
)

const (
	// refusalLimit is how long a replica may take to say that a file is no good. Where the
	// file system tells of no changes it looks every ten seconds.
	refusalLimit = 20 * time.Second
	// repairTimeout is how long it may take to use a good one again.
	repairTimeout = 2 * refusalLimit
	// answerLimit is for one question to a replica that may be paused.
	answerLimit = 2 * time.Second
)

// Labels of sacm_file_reloads_total (docs/metrics.md).
const (
	keyFlag = "service-account-private-key-file"
	caFlag  = "root-ca-file"

	resultAccepted = "accepted"
	resultRefused  = "refused"
)

// refusal is a change of files that a replica must refuse.
type refusal struct {
	// flags of the files whose refusal is counted.
	flags []string
	spoil func(r *Replica, good contents) error
	// repair puts good files back, and returns once the replica uses them.
	repair func(ctx context.Context, r *Replica, t *term, good contents) error
}

// refuses makes a change that the replica must refuse, awaits that it reports it, and restores the
// files, which the same process has to notice as well.
func (w *World) refuses(ctx context.Context, fault Planned, change refusal) (func(context.Context) error, error) {
	r := w.all()[fault.Replica]
	t, before, err := w.holdFiles(ctx, r, change)
	if err != nil {
		return nil, err
	}
	good, err := r.contents()
	if err == nil {
		err = change.spoil(r, good)
	}
	if err != nil {
		w.files.Unlock()
		return nil, err
	}
	return func(ctx context.Context) error {
		defer w.files.Unlock()
		err := change.awaitRefused(ctx, t, before)
		if err == nil {
			limit, cancel := context.WithTimeout(ctx, repairTimeout)
			defer cancel()
			if err = change.repair(limit, r, t, good); err != nil {
				err = fmt.Errorf("the restored files are not used: %w", err)
			}
		}
		if err == nil {
			return nil
		}
		if !gone(t) { // another fault may have ended it
			w.report(checker.Violated(7, "%s of %s: %v", fault.Kind, r.name, err))
		}
		return r.renew(good)
	}, nil
}

// refusals is how often a process has refused files so far, by flag.
func (c refusal) refusals(ctx context.Context, t *term) (map[string]float64, error) {
	metrics, err := t.manager.Metrics(ctx)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	now := map[string]float64{}
	for _, flag := range c.flags {
		now[flag] = reloadsIn(metrics, flag, resultRefused)
	}
	return now, nil
}

// holdFiles locks the files of a replica whose process answers, and looks at that before
// anything is changed. While it is paused or gone, it waits: a fault of files is for one
// that is there.
func (w *World) holdFiles(ctx context.Context, r *Replica, change refusal) (*term, map[string]float64, error) {
	w.files.Lock() // however long somebody else has them
	ctx, cancel := context.WithTimeout(ctx, meetLimit)
	defer cancel()
	for {
		if t := r.now(); !gone(t) && !r.isPaused() {
			once, end := context.WithTimeout(ctx, answerLimit)
			before, err := change.refusals(once, t)
			end()
			if err == nil {
				return t, before, nil
			}
		}
		w.files.Unlock()
		if !await.Sleep(ctx, 100*time.Millisecond) {
			return nil, nil, errSkipped
		}
		w.files.Lock()
	}
}

// awaitRefused returns once the process has said of each file that it is no good, or is
// gone.
func (c refusal) awaitRefused(ctx context.Context, t *term, before map[string]float64) error {
	ctx, cancel := context.WithTimeout(ctx, refusalLimit)
	defer cancel()
	return await.Poll(ctx, func(ctx context.Context) error {
		if gone(t) {
			return nil
		}
		now, err := c.refusals(ctx, t)
		if err != nil {
			return err
		}
		for _, flag := range c.flags {
			if now[flag] <= before[flag] {
				return fmt.Errorf("sacm_file_reloads_total counts no refusal of --%s", flag)
			}
		}
		return nil
	})
}

// errSkipped: the process that a fault is for is not there.
var errSkipped = errors.New("skipped")

func reloadsIn(metrics devcluster.Metrics, flag, result string) float64 {
	return metrics.Sum("sacm_file_reloads_total", devcluster.Labels{"flag": flag, "result": result})
}

func reloads(ctx context.Context, t *term, flag, result string) (float64, error) {
	var now float64
	err := await.Poll(ctx, func(ctx context.Context) error {
		if gone(t) {
			return nil
		}
		metrics, err := t.manager.Metrics(ctx)
		now = reloadsIn(metrics, flag, result)
		return err
	})
	return now, err
}

// awaitReload returns once there is one more than before, or the process is gone.
func awaitReload(ctx context.Context, t *term, flag, result string, before float64) error {
	return await.Poll(ctx, func(ctx context.Context) error {
		if gone(t) {
			return nil
		}
		metrics, err := t.manager.Metrics(ctx)
		if err == nil && reloadsIn(metrics, flag, result) <= before {
			err = fmt.Errorf("no change of --%s is counted as %s", flag, result)
		}
		return err
	})
}

// awaitShown returns once a new connection to the secure port is shown the certificate, or
// the process is gone.
func awaitShown(ctx context.Context, t *term, certificate []byte) error {
	block, _ := pem.Decode(certificate)
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // G402: what it shows is compared
	return await.Poll(ctx, func(ctx context.Context) error {
		if gone(t) {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, answerLimit)
		defer cancel()
		conn, err := dialer.DialContext(ctx, "tcp", strings.TrimPrefix(t.manager.URL(), "https://"))
		if err != nil {
			return err
		}
		defer conn.Close()
		if shown := leafOf(conn); !bytes.Equal(shown, block.Bytes) {
			return errors.New("the secure port shows another certificate")
		}
		return nil
	})
}

func leafOf(conn net.Conn) []byte {
	secured, ok := conn.(*tls.Conn)
	if !ok || len(secured.ConnectionState().PeerCertificates) == 0 {
		return nil
	}
	return secured.ConnectionState().PeerCertificates[0].Raw
}

func gone(t *term) bool {
	select {
	case <-t.manager.Done():
		return true
	default:
		return false
	}
}

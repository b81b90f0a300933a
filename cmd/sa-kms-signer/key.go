// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/cryptosigner"
	"golang.org/x/sync/semaphore"
	"k8s.io/klog/v2"
	"sa-controller-manager/controllers/keyring/external"
	"sa-controller-manager/signing"
)

const (
	// signTimeout bounds a signing request including queueing, which takes half of it at most; the client gives up then too.
	signTimeout = 2 * time.Second

	// openTimeout and probeTimeout are for a backend without an answer: then the process ends. The first is longer than
	// the timeouts of the cloud's libraries.
	openTimeout  = 20 * time.Second
	probeTimeout = 5 * time.Second

	// proofAge is how long a signature proves that the key signs.
	proofAge = 30 * time.Second

	// probe is a payload that stands for no account: {}.
	probe = "e30"

	// maxPending bounds the signatures that are asked of the backend at a time, also those that the caller has given
	// up: a PKCS#11 module cannot be interrupted.
	maxPending = 16
)

var errOpening = errors.New("the key is being opened")

// A key signs tokens with one key of a backend. It is the signing.Signer and the signing.KeySource of its socket.
type key struct {
	title   string   // its name and its URI, without what may be secret
	reports *os.File // what the supervisor reads

	library bool // what it has of a token that was away cannot be repaired
	signer  crypto.Signer
	public  signing.PublicKey
	keys    *signing.KeySet
	header  string
	pending *semaphore.Weighted
	doubted atomic.Bool  // a caller had no signature
	took    atomic.Int64 // the nanoseconds of the library's last signature
}

// keyProcess finds the key in its backend and has it sign a probe, so that a key that cannot sign, or that is another one
// than the backend shows, is refused before it is served. It returns when ctx ends or the key is lost.
func keyProcess(ctx context.Context, check bool, name, socketDir string) {
	syscall.CloseOnExec(3) // a library may start a process
	k := &key{title: name, reports: os.NewFile(3, "reports"), pending: semaphore.NewWeighted(maxPending)}
	err := k.open(name, socketDir)
	if err == nil && !check {
		err = k.serve(ctx, name, socketDir)
	}
	if ctx.Err() == nil {
		k.report(err)
	}
}

// report sends why the key does not sign, nil if it does.
func (k *key) report(err error) {
	reason := ""
	if err != nil {
		reason = strings.Join(strings.Fields(fmt.Sprintf("key %.512s: %.1024s", k.title, err)), " ") // a service may answer with a page
	}
	_, _ = fmt.Fprintln(k.reports, reason) // at once: another goroutine may report
}

// within ends the process if f does not return in time. Nothing else ends a call of a PKCS#11 library.
func (k *key) within(limit time.Duration, f func() error) error {
	defer time.AfterFunc(limit, func() {
		k.report(fmt.Errorf("the backend has not answered for %s", limit))
		os.Exit(0) //nolint:revive // main waits for f
	}).Stop()
	return f()
}

func (k *key) open(name, socketDir string) error {
	file, readErr := io.ReadAll(os.Stdin)
	spec, err := parseSpec(name, file)
	k.title += spec.shown()
	if err := errors.Join(readErr, err); err != nil {
		return err
	}
	k.library = spec.parsed.Scheme == "pkcs11"
	return k.within(openTimeout, func() (err error) {
		if k.signer, err = schemes[spec.parsed.Scheme].open(spec.parsed, socketDir); err != nil {
			return err
		}
		if k.public, err = signing.NewPublicKey(k.signer.Public()); err != nil {
			return err
		}
		if is := signing.KindOf(k.public); is != spec.Algorithm {
			return fmt.Errorf("the key is %s, and %s is asked for: name another key or its algorithm", is, spec.Algorithm)
		}
		header := fmt.Sprintf(`{"alg":%q,"kid":%q,"typ":"JWT"}`, k.public.Algorithm, k.public.ID)
		k.keys, k.header = signing.NewKeySet(k.public), base64.RawURLEncoding.EncodeToString([]byte(header))
		return k.prove()
	})
}

// serve returns why the key is lost, or why ctx has ended.
func (k *key) serve(ctx context.Context, name, socketDir string) error {
	logger := klog.FromContext(ctx).WithValues("key", name)
	server, err := external.Listen(external.Config{
		//nolint:gosec // no negative user ID on Linux
		Path: socketFile(socketDir, name), Mode: 0o600, AllowedUIDs: []uint32{uint32(os.Getuid())},
		Signer: k, Keys: k, Check: checkPayload,
		// As long as kube-apiserver accepts, as often as the backend can: the policy for tokens is that of sa-controller-manager.
		MaxTokenExpiration: math.MaxUint32 * time.Second, QPS: 1e6,
		RefreshHint: time.Minute, // the key never changes
	})
	if err != nil {
		return err
	}
	k.report(nil)
	logger.Info("Serving a key", "keyID", k.public.ID, "algorithm", k.public.Algorithm)
	ctx, end := context.WithCancelCause(klog.NewContext(ctx, logger))
	go func() { end(k.watch(ctx, server)) }()
	return errors.Join(server.Run(ctx), context.Cause(ctx))
}

// watch has the key prove again that it signs, and looks at its socket. It returns why the key is lost.
func (k *key) watch(ctx context.Context, server *external.Server) error {
	for proved := time.Now(); pause(ctx); {
		if !k.doubted.Swap(false) && time.Since(proved) < proofAge {
			continue
		}
		err := k.within(probeTimeout, k.prove)
		if err != nil && k.library {
			return err
		}
		_, away := server.Status()
		k.report(errors.Join(err, away))
		k.doubted.Store(err != nil || away != nil)
		proved = time.Now()
	}
	return nil
}

// prove has the backend sign a probe, beside what callers wait for.
func (k *key) prove() error {
	signature, err := k.sign(probe)
	if err != nil {
		return fmt.Errorf("the key does not sign: %w", err)
	}
	if err = k.public.Verify(k.header, probe, signature); err != nil {
		return fmt.Errorf("the key does not sign: it signs with another private half: %w", err)
	}
	return nil
}

// sign returns the signature of a token, and takes as long as the backend does.
func (k *key) sign(payload string) (string, error) {
	if k.library {
		defer func(begun time.Time) { k.took.Store(int64(time.Since(begun))) }(time.Now())
	}
	jws, err := cryptosigner.Opaque(k.signer).SignPayload([]byte(k.header+"."+payload), jose.SignatureAlgorithm(k.public.Algorithm))
	return base64.RawURLEncoding.EncodeToString(jws), err
}

// Keys implements signing.KeySource.
func (k *key) Keys() *signing.KeySet { return k.keys }

// Sign implements signing.Signer, with the header of KEP-740 in every style. The client verifies the
// signature with the public half that it has pinned.
func (k *key) Sign(ctx context.Context, _ signing.HeaderStyle, payload string) (header, signature string, err error) {
	ctx, cancel := context.WithTimeout(ctx, signTimeout)
	queued, leave := context.WithTimeout(ctx, signTimeout/2)
	defer func() { cancel(); leave(); k.doubted.CompareAndSwap(false, err != nil) }()
	// A library is asked for as many as it makes in the other half: an HSM may make one after the other.
	share := min(maxPending, 1+k.took.Load()*maxPending/int64(signTimeout/2))
	if err := k.pending.Acquire(queued, share); err != nil {
		return "", "", err
	}
	answered, signed := make(chan error, 1), ""
	go func() {
		defer k.pending.Release(share)
		answered <- k.within(probeTimeout, func() (err error) { signed, err = k.sign(payload); return err })
	}()
	select {
	case err := <-answered:
		return k.header, signed, err
	case <-ctx.Done():
		return "", "", ctx.Err()
	}
}

// refusal is the error of checkPayload. Its text holds nothing of the payload.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) Reason() string  { return "payload" }
func (refusal) Malformed() bool { return true }

// checkPayload accepts the claims of a token: a JSON object. What the claims may say is decided by
// sa-controller-manager, which alone may connect.
func checkPayload(payload string) error {
	data, err := base64.RawURLEncoding.DecodeString(payload)
	var claims map[string]json.RawMessage
	if err != nil || base64.RawURLEncoding.EncodeToString(data) != payload || // it skips line breaks
		json.Unmarshal(data, &claims) != nil || claims == nil {
		return refusal("the payload is not the base64url segment of a JSON object")
	}
	return nil
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/klog/v2"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/external"
)

const (
	// resync is how often --keys-dir is read. A file that is being written is read again soon.
	resync = 2 * time.Second

	// slow is how long the opening of a key takes before the log says so: the backends' own timeouts are shorter.
	slow = 20 * time.Second

	// proofAge is how long a signature proves that a key signs. While any key fails, every key is asked at each pass: a
	// PKCS#11 library is initialized again once none of its keys holds it.
	proofAge = 30 * time.Second

	// stopTimeout is for what a backend does after SIGTERM. It is longer than a signature and the drain of a socket.
	stopTimeout = 5 * time.Second

	// notServed is a file beside the sockets with a line for each key that does not sign now. Without one there is no
	// such file.
	notServed = "not-served"

	// refreshHint is how often a client is to fetch the key, which never changes.
	refreshHint = time.Minute

	// maxTokenExpiration is what kube-apiserver accepts at most (1<<32 s). The policy for tokens
	// is that of sa-controller-manager.
	maxTokenExpiration = math.MaxUint32 * time.Second

	// maxQPS lifts the limit of package external: the backend is the limit.
	maxQPS = 1e6
)

// servers are the keys of --keys-dir. One goroutine has them and waits for no backend: what may wait runs aside.
type servers struct {
	keysDir, socketDir string
	keys               map[string]*served // by name
	failed             map[string]error   // what the last pass found, by name
	ended              chan struct{}      // an opening has ended
	serving            sync.WaitGroup
	fail               context.CancelCauseFunc
}

// served is one file of --keys-dir. It is the signing.Signer and the signing.KeySource of its socket.
type served struct {
	key     atomic.Pointer[key] // nil: none is served
	stop    context.CancelFunc  // of the socket; nil: there is none
	opening *opening            // nil: none is being opened
	begun   time.Time           // when the last opening began
	err     error               // why the last opening failed
}

// opening is a key that is looked for. Its fields may be read once ended is closed.
type opening struct {
	spec  keySpec
	ended chan struct{}
	key   *key
	err   error
}

var errOpening = errors.New("the key is being opened")

// serve serves the keys of a directory until ctx ends. A key that cannot be served is tried again, while the
// others are served. It is an error if a server ends by itself.
func serve(ctx context.Context, keysDir, socketDir string) error {
	if err := errors.Join(checkDirectory("keys-dir", keysDir), checkDirectory("socket-dir", socketDir)); err != nil {
		return err
	}
	lock, err := os.Open(socketDir)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("--socket-dir=%s: %w: want a directory that no other sa-kms-signer uses", socketDir, err)
	}
	if err := refusedPINs.load(socketDir); err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	s := &servers{keysDir: keysDir, socketDir: socketDir, keys: map[string]*served{}, ended: make(chan struct{}, 1), fail: fail}
	ticker := time.NewTicker(resync)
	defer ticker.Stop()
	for {
		s.report(ctx, s.pass(ctx))
		select {
		case <-ctx.Done():
			done := make(chan struct{})
			go func() { s.serving.Wait(); close(done) }()
			select {
			case <-done:
			case <-time.After(stopTimeout):
				klog.FromContext(ctx).Info("Ending without the answer of a backend")
			}
			return context.Cause(ctx)
		case <-ticker.C:
		case <-s.ended:
		}
	}
}

// report logs the errors by name that are not the last ones, and keeps a file of all for a readiness probe.
func (s *servers) report(ctx context.Context, failed map[string]error) {
	path, lines := filepath.Join(s.socketDir, notServed), ""
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		lines += failed[name].Error() + "\n"
	}
	var err error
	if lines == "" {
		if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	} else if before, _ := os.ReadFile(path); string(before) != lines {
		if err = writeFile(path, []byte(lines)); err != nil {
			_ = os.WriteFile(path, nil, 0o600) // a full disk has room for this
		}
	}
	if err != nil {
		failed[notServed] = fmt.Errorf("say for the readiness probe which keys do not sign: %w", err)
	}
	for name, err := range failed {
		if last := s.failed[name]; !errors.Is(err, errOpening) && (last == nil || last.Error() != err.Error()) {
			klog.FromContext(ctx).Error(err, "Failed to serve a key, trying again; what was served of it before stays")
		}
	}
	s.failed = failed
}

func checkDirectory(flag, dir string) error {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() || !filepath.IsAbs(dir) {
		return fmt.Errorf("--%s=%s: want the absolute path of a directory that exists", flag, dir)
	}
	return nil
}

// pass follows the directory, and returns by name which keys do not sign now, and why. A file with an error changes
// nothing for its key, nor for another one, and a directory that cannot be read changes nothing at all.
func (s *servers) pass(ctx context.Context) map[string]error {
	failed := map[string]error{}
	if err := refusedPINs.save(); err != nil {
		failed["refused-pins"] = err
	}
	files, err := os.ReadDir(s.keysDir)
	if err != nil {
		failed["--keys-dir"] = fmt.Errorf("--keys-dir: %w: the keys that are served stay", err)
	}
	there := map[string]bool{}
	for _, file := range files {
		if name, is := strings.CutSuffix(file.Name(), ".yaml"); is {
			there[name] = true
			s.keys[name] = cmp.Or(s.keys[name], &served{})
		}
	}
	for name, k := range s.keys {
		if err == nil && !there[name] {
			k.giveUp()
			if k.stop != nil {
				klog.FromContext(ctx).Info("Stopped serving a key whose file was removed", "key", name)
				k.stop()
			}
			delete(s.keys, name)
		} else if err := s.follow(ctx, name, k); err != nil {
			failed[name] = err
		}
	}
	return failed
}

// follow makes the key that of its file, and returns why it does not sign.
func (s *servers) follow(ctx context.Context, name string, k *served) error {
	spec, err := readSpec(keyFile(s.keysDir, name))
	if err != nil {
		return err
	}
	if k.opening != nil {
		select {
		case <-k.opening.ended:
			if k.err = k.opening.err; k.err == nil {
				k.err = s.start(ctx, name, k, k.opening.key)
			}
			k.opening = nil
		default:
			switch waits := time.Since(k.begun); {
			case k.opening.spec != spec:
				k.giveUp()
			case waits > slow:
				return spec.failed(name, fmt.Errorf("the backend has not answered since %s", k.begun.UTC().Format(time.TimeOnly)))
			default:
				return cmp.Or(k.err, spec.failed(name, errOpening))
			}
		}
	}
	if now := k.key.Load(); now != nil && now.spec == spec {
		return now.proved(len(s.failed) > 0)
	}
	if time.Since(k.begun) < resync {
		return k.err
	}
	o := &opening{spec: spec, ended: make(chan struct{})}
	k.opening, k.begun = o, time.Now()
	go func() {
		o.key, o.err = openKey(name, spec)
		close(o.ended)
		select {
		case s.ended <- struct{}{}:
		default:
		}
	}()
	return cmp.Or(k.err, spec.failed(name, errOpening))
}

// giveUp leaves an opening to itself, which may never end.
func (k *served) giveUp() {
	if o := k.opening; o != nil {
		go func() {
			if <-o.ended; o.key != nil {
				o.key.backend.close()
			}
		}()
	}
	k.opening, k.err = nil, nil
}

// start serves a key, on the socket of the previous one of its name if there is one.
func (s *servers) start(ctx context.Context, name string, k *served, found *key) error {
	logger := klog.FromContext(ctx).WithValues("key", name)
	var server *external.Server
	if k.stop == nil {
		var err error
		server, err = external.Listen(external.Config{
			//nolint:gosec // no negative user ID on Linux
			Path: filepath.Join(s.socketDir, name+".sock"), Mode: 0o600, AllowedUIDs: []uint32{uint32(os.Getuid())},
			Signer: k, Keys: k, Check: checkPayload,
			MaxTokenExpiration: maxTokenExpiration, RefreshHint: refreshHint, QPS: maxQPS,
		})
		if err != nil {
			go found.backend.close()
			return fmt.Errorf("key %s: %w", name, err)
		}
	}
	logger.Info("Serving a key", "keyID", found.public.ID, "algorithm", found.public.Algorithm)
	if previous := k.key.Swap(found); previous != nil {
		go previous.backend.close()
	}
	if server == nil {
		return nil
	}
	var serving context.Context
	serving, k.stop = context.WithCancel(klog.NewContext(ctx, logger))
	s.serving.Go(func() {
		if err := server.Run(serving); err != nil {
			s.fail(fmt.Errorf("key %s: %w", name, err))
		}
		k.key.Load().backend.close()
	})
	return nil
}

// Keys implements signing.KeySource.
func (k *served) Keys() *signing.KeySet { return k.key.Load().keys }

// Sign implements signing.Signer, with the header of KEP-740 in every style. The client verifies the
// signature with the public half that it has pinned.
func (k *served) Sign(ctx context.Context, _ signing.HeaderStyle, payload string) (header, signature string, err error) {
	now := k.key.Load()
	signature, err = now.askFor(ctx, payload)
	return now.header, signature, err
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
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
	"time"

	"k8s.io/klog/v2"
	"sa-controller-manager/internal/atomicfile"
	"sa-controller-manager/signing/external"
)

const (
	// resync is how often --keys-dir is read. A file that is being written is read again soon.
	resync = 2 * time.Second

	// notServed is a file beside the sockets with a line for each key that cannot be served. Without one there is no
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

// servers are the keys that are served.
type servers struct {
	keysDir, socketDir string
	running            map[string]*running // by name
	failed             map[string]error    // why others are not, by name
	fail               context.CancelCauseFunc
}

// running is one key that is served.
type running struct {
	spec keySpec
	stop context.CancelFunc
	done chan struct{}
}

// serve serves the keys of a directory until ctx ends. A key that cannot be served is tried again, while the
// others are served. It is an error if a server ends by itself.
func serve(ctx context.Context, keysDir, socketDir string) error {
	if err := errors.Join(checkDirectory("keys-dir", keysDir), checkDirectory("socket-dir", socketDir)); err != nil {
		return err
	}
	if err := refusedPINs.load(socketDir); err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	s := &servers{keysDir: keysDir, socketDir: socketDir, running: map[string]*running{}, fail: fail}
	defer func() {
		for name := range s.running {
			s.stop(name)
		}
	}()
	for {
		s.report(ctx, s.sync(ctx))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(resync):
		}
	}
}

// report logs the errors by name that are not the last ones, and keeps a file of all for a readiness probe.
func (s *servers) report(ctx context.Context, failed map[string]error) {
	same := func(a, b error) bool { return a != nil && b != nil && a.Error() == b.Error() }
	if s.failed != nil && maps.EqualFunc(failed, s.failed, same) {
		return
	}
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		_, _ = fmt.Fprintln(&lines, failed[name])
		if !same(failed[name], s.failed[name]) {
			klog.FromContext(ctx).Error(failed[name], "Failed to serve a key, trying again; what was served of it before stays")
		}
	}
	path := filepath.Join(s.socketDir, notServed)
	var err error
	if lines.Len() > 0 {
		err = atomicfile.Write(path, []byte(lines.String()), 0o600)
	} else if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to say for the readiness probe which keys are not served")
	}
	s.failed = failed
}

func checkDirectory(flag, dir string) error {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() || !filepath.IsAbs(dir) {
		return fmt.Errorf("--%s=%s: want the absolute path of a directory that exists", flag, dir)
	}
	return nil
}

// sync starts, restarts and stops servers until they are those of the directory. A file with an error
// changes nothing for its key, nor for another one: all are opened side by side, since a backend that is away
// answers late. It returns the errors by name.
func (s *servers) sync(ctx context.Context) map[string]error {
	failed := map[string]error{}
	paths, err := filepath.Glob(keyFile(s.keysDir, "*"))
	if err != nil {
		failed[""] = err
		return failed
	}
	gone := maps.Clone(s.running)
	type opened struct {
		name string
		spec keySpec
		key  *key
		err  error
	}
	results, opening := make(chan opened), 0
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		delete(gone, name)
		spec, err := readSpec(path)
		if err != nil {
			failed[name] = err
			continue
		}
		if r := s.running[name]; r == nil || r.spec != spec {
			opening++
			go func() {
				k, err := openKey(name, spec)
				results <- opened{name, spec, k, err}
			}()
		}
	}
	for range opening {
		result := <-results
		if result.err == nil {
			result.err = s.start(ctx, result.name, result.spec, result.key)
		}
		if result.err != nil {
			failed[result.name] = result.err
		}
	}
	for name := range gone {
		klog.FromContext(ctx).Info("Stopped serving a key whose file was removed", "key", name)
		s.stop(name)
	}
	return failed
}

// start serves a key in place of the one that has its name.
func (s *servers) start(ctx context.Context, name string, spec keySpec, k *key) error {
	s.stop(name)
	server, err := external.Listen(external.Config{
		//nolint:gosec // no negative user ID on Linux
		Path: filepath.Join(s.socketDir, name+".sock"), Mode: 0o600, AllowedUIDs: []uint32{uint32(os.Getuid())},
		Signer: k, Keys: k, Check: checkPayload,
		MaxTokenExpiration: maxTokenExpiration, RefreshHint: refreshHint, QPS: maxQPS,
	})
	if err != nil {
		k.backend.close()
		return fmt.Errorf("key %s: %w", name, err)
	}
	klog.FromContext(ctx).Info("Serving a key", "key", name, "keyID", k.public.ID, "algorithm", k.public.Algorithm)
	serving, stop := context.WithCancel(klog.NewContext(ctx, klog.FromContext(ctx).WithValues("key", name)))
	r := &running{spec: spec, stop: stop, done: make(chan struct{})}
	s.running[name] = r
	go func() {
		defer close(r.done)
		defer k.backend.close()
		if err := server.Run(serving); err != nil {
			s.fail(fmt.Errorf("key %s: %w", name, err))
		}
	}()
	return nil
}

func (s *servers) stop(name string) {
	if r := s.running[name]; r != nil {
		r.stop()
		<-r.done
		delete(s.running, name)
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"sa-controller-manager/signing/external"
)

const (
	// settle is how long --keys-dir must be quiet before it is read, so that a file which is
	// being written is not read in half.
	settle = 500 * time.Millisecond

	// resync is how often --keys-dir is read without a notification.
	resync = 10 * time.Second

	// refreshHint is how often a client is to fetch the key, which never changes.
	refreshHint = time.Minute

	// maxTokenExpiration is what kube-apiserver accepts at most (1<<32 s). The policy for tokens
	// is that of sa-controller-manager.
	maxTokenExpiration = math.MaxUint32 * time.Second

	// maxQPS lifts the limit of package external: the backend is the limit.
	maxQPS = 1e6
)

// directories are the flags of serve.
type directories struct{ keys, sockets string }

// servers are the keys that are served, by name.
type servers struct {
	dirs    directories
	running map[string]*running
	ended   chan error
	logged  sets.Set[string] // the errors of the last sync
}

// running is one key that is served.
type running struct {
	spec keySpec
	stop context.CancelFunc
	done sync.WaitGroup
}

// serve serves the keys of a directory until ctx ends. A key that cannot be served at start is an
// error; so is a server that ends by itself.
func serve(ctx context.Context, dirs directories) error {
	for flag, dir := range map[string]string{"--keys-dir": dirs.keys, "--socket-dir": dirs.sockets} {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() || !filepath.IsAbs(dir) {
			return fmt.Errorf("%s=%s: want the absolute path of a directory that exists", flag, dir)
		}
	}
	s := &servers{dirs: dirs, running: map[string]*running{}, ended: make(chan error)}
	defer s.stopAll()
	changes, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch %s: %w", dirs.keys, err)
	}
	defer func() { _ = changes.Close() }()
	if err := changes.Add(dirs.keys); err != nil {
		return fmt.Errorf("watch %s: %w", dirs.keys, err)
	}
	if err := errors.Join(s.sync(ctx)...); err != nil {
		return err
	}
	if len(s.running) == 0 {
		klog.FromContext(ctx).Info("No key to serve yet", "directory", dirs.keys)
	}
	next := time.NewTimer(resync)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.ended:
			return err
		case <-changes.Events:
			next.Reset(settle)
		case err := <-changes.Errors:
			klog.FromContext(ctx).V(2).Info("Lost notifications, reading the directory again", "directory", dirs.keys, "err", err)
			next.Reset(settle)
		case <-next.C:
			s.logNew(ctx, s.sync(ctx))
			next.Reset(resync)
		}
	}
}

// sync starts, restarts and stops servers until they are those of the directory. A file with an
// error changes nothing for its key.
func (s *servers) sync(ctx context.Context) []error {
	paths, err := filepath.Glob(keyFile(s.dirs.keys, "*"))
	if err != nil {
		return []error{err}
	}
	var errs []error
	there := map[string]bool{}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		there[name] = true
		if err := s.syncKey(ctx, name, path); err != nil {
			errs = append(errs, err)
		}
	}
	for name := range s.running {
		if !there[name] {
			klog.FromContext(ctx).Info("Stopped serving a key whose file was removed", "key", name)
			s.stop(name)
		}
	}
	return errs
}

func (s *servers) syncKey(ctx context.Context, name, path string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("%s: want a name of lower-case letters, digits, \"-\" and \".\", 63 at most", path)
	}
	spec, err := readSpec(path)
	if err != nil {
		return err
	}
	if r := s.running[name]; r != nil && r.spec == spec {
		return nil
	}
	k, err := openKey(ctx, name, spec)
	if err != nil {
		return err
	}
	s.stop(name)
	return s.start(ctx, k, spec)
}

func (s *servers) start(ctx context.Context, k *key, spec keySpec) error {
	server, err := external.Listen(external.Config{
		Path: filepath.Join(s.dirs.sockets, k.name+".sock"), Mode: 0o600, AllowedUIDs: []uint32{uint32(os.Getuid())}, //nolint:gosec // no negative user ID on Linux
		Signer: k, Keys: k, Check: checkPayload,
		MaxTokenExpiration: maxTokenExpiration, RefreshHint: refreshHint, QPS: maxQPS,
	})
	if err != nil {
		k.backend.close()
		return fmt.Errorf("key %s: %w", k.name, err)
	}
	serving, stop := context.WithCancel(ctx)
	r := &running{spec: spec, stop: stop}
	r.done.Go(func() {
		err := server.Run(klog.NewContext(serving, klog.FromContext(ctx).WithValues("key", k.name)))
		k.backend.close()
		if err == nil {
			return
		}
		select {
		case s.ended <- fmt.Errorf("key %s: %w", k.name, err):
		case <-serving.Done():
		}
	})
	s.running[k.name] = r
	klog.FromContext(ctx).Info("Serving a key", "key", k.name, "keyID", k.public.ID, "algorithm", k.public.Algorithm)
	return nil
}

func (s *servers) stop(name string) {
	if r := s.running[name]; r != nil {
		r.stop()
		r.done.Wait()
		delete(s.running, name)
	}
}

func (s *servers) stopAll() {
	for _, r := range s.running {
		r.stop()
	}
	for _, r := range s.running {
		r.done.Wait()
	}
}

// logNew logs each error once for as long as it stays the same.
func (s *servers) logNew(ctx context.Context, errs []error) {
	now := sets.New[string]()
	for _, err := range errs {
		now.Insert(err.Error())
		if !s.logged.Has(err.Error()) {
			klog.FromContext(ctx).Error(err, "Failed to serve a key, the previous one stays")
		}
	}
	s.logged = now
}

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
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"sa-controller-manager/signing/external"
)

const (
	// resync is how often --keys-dir is read, and a key that cannot be served is tried again.
	resync = 2 * time.Second

	// stopTimeout is how long a stop waits for the backends.
	stopTimeout = 5 * time.Second

	// refreshHint is how often a client is to fetch the key, which never changes.
	refreshHint = time.Minute

	// maxTokenExpiration is what kube-apiserver accepts at most (1<<32 s). The policy for tokens
	// is that of sa-controller-manager.
	maxTokenExpiration = math.MaxUint32 * time.Second

	// maxQPS lifts the limit of package external: the backend is the limit.
	maxQPS = 1e6
)

// keeper keeps one key served: what fails costs only its own key.
type keeper struct {
	name, path, socket string
	// serving is nil until the key was opened.
	serving *serving
	// last is the error that was logged last, "" after a success.
	last string
}

// serving is the server of a key.
type serving struct {
	spec keySpec
	stop context.CancelFunc
	done chan struct{}
}

// serve serves the keys of a directory until ctx ends, each by a keeper of its own: a backend that
// hangs or fails holds up no other key. It is an error if the directory has files, and none can be read.
func serve(ctx context.Context, keysDir, socketDir string) error {
	if err := errors.Join(checkDirectory("keys-dir", keysDir), checkDirectory("socket-dir", socketDir)); err != nil {
		return err
	}
	if err := checkFiles(ctx, keysDir); err != nil {
		return err
	}
	var keepers sync.WaitGroup
	ends := map[string]context.CancelFunc{} // of keepers, by path
	for {
		paths, err := filepath.Glob(keyFile(keysDir, "*"))
		if err != nil {
			return err
		}
		for _, path := range paths {
			if ends[path] != nil {
				continue
			}
			keeping, end := context.WithCancel(ctx)
			ends[path] = end
			name := strings.TrimSuffix(filepath.Base(path), ".yaml")
			k := &keeper{name: name, path: path, socket: filepath.Join(socketDir, name+".sock")}
			keepers.Go(func() { k.run(klog.NewContext(keeping, klog.FromContext(ctx).WithValues("key", name))) })
		}
		for path, end := range ends {
			if !slices.Contains(paths, path) {
				end()
				delete(ends, path)
			}
		}
		select {
		case <-ctx.Done():
			return awaitKeepers(ctx, &keepers)
		case <-time.After(resync):
		}
	}
}

// awaitKeepers waits for the requests that are under way. A module that hangs cannot be interrupted.
func awaitKeepers(ctx context.Context, keepers *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		keepers.Wait()
		close(done)
	}()
	select {
	case <-done:
		return ctx.Err()
	case <-time.After(stopTimeout):
		return fmt.Errorf("a backend did not answer within %s of the stop", stopTimeout)
	}
}

func checkDirectory(flag, dir string) error {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() || !filepath.IsAbs(dir) {
		return fmt.Errorf("--%s=%s: want the absolute path of a directory that exists", flag, dir)
	}
	return nil
}

func checkFiles(ctx context.Context, keysDir string) error {
	paths, err := filepath.Glob(keyFile(keysDir, "*"))
	if err != nil {
		return err
	}
	var unread []error
	for _, path := range paths {
		if _, err := readSpec(path); err != nil {
			unread = append(unread, err)
		}
	}
	if len(unread) == len(paths) {
		if len(paths) == 0 {
			klog.FromContext(ctx).Info("No key to serve yet", "directory", keysDir)
		}
		return errors.Join(unread...)
	}
	return nil
}

// run follows the file of the key until ctx ends. It opens the key again after any failure.
func (k *keeper) run(ctx context.Context) {
	logger := klog.FromContext(ctx)
	for {
		err := k.sync(ctx)
		if err == nil {
			k.last = ""
		} else if k.last != err.Error() {
			k.last = err.Error()
			logger.Error(err, "Failed to serve a key, trying again", "previousStays", k.serving != nil)
		}
		select {
		case <-ctx.Done():
			k.end()
			logger.Info("Stopped serving a key")
			return
		case <-time.After(resync):
		}
	}
}

// sync serves the key as its file says. With an error the previous one stays.
func (k *keeper) sync(ctx context.Context) error {
	spec, err := readSpec(k.path)
	if err != nil {
		return err
	}
	if k.serving != nil && k.serving.spec == spec && !k.serving.ended() {
		return nil
	}
	opened, err := openKey(k.name, spec)
	if err != nil {
		return err
	}
	k.end()
	server, err := external.Listen(external.Config{
		Path: k.socket, Mode: 0o600, AllowedUIDs: []uint32{uint32(os.Getuid())}, //nolint:gosec // no negative user ID on Linux
		Signer: opened, Keys: opened, Check: checkPayload,
		MaxTokenExpiration: maxTokenExpiration, RefreshHint: refreshHint, QPS: maxQPS,
	})
	if err != nil {
		opened.backend.close()
		return fmt.Errorf("key %s: %w", k.name, err)
	}
	logger := klog.FromContext(ctx)
	logger.Info("Serving a key", "keyID", opened.public.ID, "algorithm", opened.public.Algorithm)
	running, stop := context.WithCancel(ctx)
	s := &serving{spec: spec, stop: stop, done: make(chan struct{})}
	k.serving = s
	go func() {
		defer close(s.done)
		defer opened.backend.close()
		if err := server.Run(running); err != nil {
			logger.Error(err, "The server of a key has ended")
		}
	}()
	return nil
}

func (s *serving) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// end closes the socket and waits for its requests.
func (k *keeper) end() {
	if s := k.serving; s != nil {
		s.stop()
		<-s.done
		k.serving = nil
	}
}

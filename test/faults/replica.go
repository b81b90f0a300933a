// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/faultproxy"
)

// Replica is one of several processes of the product, one after the other.
type Replica struct {
	world *World
	name  string
	// address is where it serves admission: a loopback address of its own, so that all
	// replicas have the same port, as on several hosts.
	address string
	dir     string
	binary  devcluster.Binary
	flags   []string

	mu    sync.Mutex
	terms []*term
}

// term is the life of one process.
type term struct {
	manager *devcluster.Manager
	proxy   *faultproxy.Proxy
	paused  bool
	resumed []time.Time // when it went on after each pause
}

// start starts a process. It does not wait.
func (r *Replica) start() error {
	proxy, err := faultproxy.Start(r.world.cluster.Config())
	if err != nil {
		return err
	}
	kubeconfig := filepath.Join(r.dir, "kubeconfig")
	if err := proxy.WriteKubeconfig(kubeconfig); err != nil {
		proxy.Close()
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &term{proxy: proxy}
	r.terms = append(r.terms, t)
	t.manager, err = r.binary.StartManager(r.world.cluster, append([]string{
		"--kubeconfig=" + kubeconfig,
		"--webhook-bind-address=" + r.address, "--webhook-port=" + strconv.Itoa(r.world.port),
	}, r.flags...)...)
	if err != nil {
		r.terms = r.terms[:len(r.terms)-1]
		proxy.Close()
		return fmt.Errorf("start %s: %w", r.name, err)
	}
	return nil
}

// ready starts a process and returns once it is ready.
func (r *Replica) ready(ctx context.Context) error {
	if err := r.start(); err != nil {
		return err
	}
	if err := r.now().manager.Ready(ctx); err != nil {
		return fmt.Errorf("await %s: %w", r.name, err)
	}
	return nil
}

// now is the newest term, nil before the first.
func (r *Replica) now() *term {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.terms) == 0 {
		return nil
	}
	return r.terms[len(r.terms)-1]
}

func (r *Replica) all() []*term {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*term(nil), r.terms...)
}

// kill ends the process as a power cut would.
func (r *Replica) kill() error {
	t := r.now()
	_, err := t.manager.Kill()
	t.proxy.Close()
	return err
}

// stop ends the process in order.
func (r *Replica) stop() error {
	t := r.now()
	if t == nil {
		return nil
	}
	exit, err := t.manager.Stop()
	t.proxy.Close()
	if err == nil && exit.Code > 0 {
		err = fmt.Errorf("%s ended with code %d; its last words:\n%s", r.name, exit.Code, t.manager.LogTail(10))
	}
	return err
}

func (r *Replica) pause() error {
	r.setPaused(true)
	return r.now().manager.Pause()
}

func (r *Replica) resume() error {
	defer r.setPaused(false)
	t := r.now()
	r.mu.Lock()
	t.resumed = append(t.resumed, time.Now())
	r.mu.Unlock()
	return t.manager.Resume()
}

func (r *Replica) isPaused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.terms[len(r.terms)-1].paused
}

func (r *Replica) setPaused(paused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.terms[len(r.terms)-1].paused = paused
}

// holds reports whether the identity is that of its process.
func (r *Replica) holds(identity string) bool {
	t := r.now()
	return identity != "" && t != nil && strings.Contains(t.manager.Logs(), identity)
}

// awaitWatches returns once its process watches the resources, or has ended.
func (r *Replica) awaitWatches(ctx context.Context, resources ...string) error {
	t := r.now()
	return await.Poll(ctx, func(context.Context) error {
		for _, resource := range resources {
			open := func(request faultproxy.Request) bool {
				return request.Verb == "watch" && request.Resource == resource && request.Open
			}
			if !gone(t) && len(t.proxy.Requests(open)) == 0 {
				return fmt.Errorf("%s does not watch %s", r.name, resource)
			}
		}
		return nil
	})
}

func gone(t *term) bool {
	select {
	case <-t.manager.Done():
		return true
	default:
		return false
	}
}

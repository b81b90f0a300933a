// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/faultproxy"
)

// Replica is one of several processes of the product, one after the other.
type Replica struct {
	world  *World
	name   string
	dir    string
	binary devcluster.Binary
	flags  []string
	terms  []*term
}

// term is the life of one process.
type term struct {
	manager *devcluster.Manager
	proxy   *faultproxy.Proxy
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
	manager, err := r.binary.StartManager(r.world.cluster, append([]string{"--kubeconfig=" + kubeconfig}, r.flags...)...)
	if err != nil {
		proxy.Close()
		return fmt.Errorf("start %s: %w", r.name, err)
	}
	r.terms = append(r.terms, &term{manager: manager, proxy: proxy})
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

// now is the newest term.
func (r *Replica) now() *term { return r.terms[len(r.terms)-1] }

// kill ends the process as a power cut would.
func (r *Replica) kill() error {
	t := r.now()
	_, err := t.manager.Kill()
	t.proxy.Close()
	return err
}

// stop ends the process in order, if there is one.
func (r *Replica) stop() error {
	if len(r.terms) == 0 {
		return nil
	}
	t := r.now()
	exit, err := t.manager.Stop()
	t.proxy.Close()
	if err == nil && exit.Code > 0 {
		err = fmt.Errorf("%s ended with code %d; its last words:\n%s", r.name, exit.Code, t.manager.LogTail(10))
	}
	return err
}

func (t *term) resume() error {
	t.resumed = append(t.resumed, time.Now())
	return t.manager.Resume()
}

// awaitRequest returns once its process has sent such a request, or has ended.
func (t *term) awaitRequest(ctx context.Context, match faultproxy.Match) error {
	return await.Poll(ctx, func(context.Context) error {
		select {
		case <-t.manager.Done():
			return nil
		default:
		}
		if len(t.proxy.Requests(match)) == 0 {
			return errors.New("it has sent no such request")
		}
		return nil
	})
}

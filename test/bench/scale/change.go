// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"sa-controller-manager/test/bench/result"
	"sa-controller-manager/test/bench/world"
)

const (
	// reissue is the annotation that asks for another Secret beside this one.
	reissue = "sa-controller-manager/reissue"
	// replaces is that of the other one, NAME/UID of the first.
	replaces = "sa-controller-manager/replaces"
)

func (s *scene) annotations(i int) map[string]string {
	if i < s.Reissued {
		return map[string]string{reissue: "side-by-side"}
	}
	return nil
}

// keys measures how long one Secret waits while everything else rests.
func (s *scene) keys(ctx context.Context) error {
	var current atomic.Pointer[world.Goal]
	never := world.NewGoal([]string{"what keeps the watch open"})
	following, stop := context.WithCancel(ctx)
	defer stop()
	err := s.w.Follow(following, never, func(event watch.EventType, object runtime.Object) {
		if goal := current.Load(); goal != nil {
			world.Notice(goal)(event, object)
		}
	}, "secrets")
	if err != nil {
		return err
	}
	var waited []float64
	for i := range s.Keys {
		namespace, account := s.place(i % s.size)
		name := fmt.Sprintf("late-%04d", i)
		goal := world.NewGoal([]string{world.Filled(namespace, name)})
		goal.Needs(s.running)
		current.Store(goal)
		begun := time.Now()
		if err := s.w.MakeTokenSecret(ctx, namespace, name, account, nil); err != nil {
			return err
		}
		ended, err := goal.Wait(ctx)
		if err != nil {
			return err
		}
		waited = append(waited, float64(ended.Sub(begun))/float64(time.Millisecond))
	}
	s.made += s.Keys
	s.add("one key, from its creation to filled, p50", "ms", result.Quantile(waited, 0.5))
	s.add("one key, from its creation to filled, p99", "ms", result.Quantile(waited, 0.99))
	return nil
}

// otherClient reads one Secret fifty times a second until ctx ends, and returns how long
// kube-apiserver took, in milliseconds.
func (s *scene) otherClient(ctx context.Context) (took []float64, err error) {
	namespace, name := s.place(0)
	next := time.NewTicker(20 * time.Millisecond)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return took, nil
		case <-next.C:
		}
		begun := time.Now()
		if _, err := s.w.Client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
			if ctx.Err() != nil {
				return took, nil
			}
			return nil, err
		}
		took = append(took, float64(time.Since(begun))/float64(time.Millisecond))
	}
}

// How long another client is watched before a rollout, and during the first part of it.
const (
	quietSample   = 30 * time.Second
	rolloutSample = time.Minute
)

// rootCA adds a CA to the file, and measures the first minute of the rollout: its rate, and what
// another client notices of it. All of it would take half an hour in the largest cluster, because
// the product limits the rate.
func (s *scene) rootCA(ctx context.Context) error {
	old, err := os.ReadFile(s.rootCAFile())
	if err != nil {
		return err
	}
	more, err := os.ReadFile(s.w.ClientCAFile()) // any will do
	if err != nil {
		return err
	}
	quiet, stop := context.WithTimeout(ctx, quietSample)
	before, err := s.otherClient(quiet)
	stop()
	if err != nil {
		return err
	}
	goal := s.everywhere()
	goal.Needs(s.running)
	inner, added := world.Notice(goal), bytes.TrimSpace(more)
	err = s.w.Follow(ctx, goal, func(event watch.EventType, object runtime.Object) {
		if bytes.Contains(bundleOf(object), added) {
			inner(event, object)
		}
	}, "configmaps", "secrets")
	if err != nil {
		return err
	}
	used, err := s.running.CPU()
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := replace(s.rootCAFile(), old, more); err != nil {
		return err
	}
	rollout, stop := context.WithTimeout(ctx, rolloutSample)
	defer stop()
	go func() {
		_, _ = goal.Wait(rollout) // the sample ends early where all is reached
		stop()
	}()
	during, err := s.otherClient(rollout)
	if err != nil {
		return err
	}
	took, reached := time.Since(begun), goal.Count()
	after, err := s.running.CPU()
	if err != nil {
		return err
	}
	s.add("another root CA, objects a second", "", float64(reached)/took.Seconds())
	s.add("another root CA, CPU for 1000 objects", "s", (after-used)/float64(reached)*1000)
	s.add("a GET of another client, p99, before that", "ms", result.Quantile(before, 0.99))
	s.add("a GET of another client, p99, meanwhile", "ms", result.Quantile(during, 0.99))
	s.add(slowdown, "x", result.Quantile(during, 0.99)/result.Quantile(before, 0.99))
	return nil
}

// everywhere is that each namespace has its root CA and each token Secret all of its data.
func (s *scene) everywhere() *world.Goal {
	var names []string
	for i := range s.spaces() {
		names = append(names, world.RootCA(world.Namespace(i)))
	}
	for i := range s.size {
		names = append(names, world.Filled(s.place(i)))
	}
	return world.NewGoal(names)
}

func bundleOf(object runtime.Object) []byte {
	switch o := object.(type) {
	case *corev1.ConfigMap:
		return []byte(o.Data[corev1.ServiceAccountRootCAKey])
	case *corev1.Secret:
		return o.Data[corev1.ServiceAccountRootCAKey]
	default:
		return nil
	}
}

// rotate has another key sign. The Secrets that ask for it get another one each beside them.
func (s *scene) rotate(ctx context.Context) error {
	count := min(s.Reissued, s.size)
	var names []string
	for i := range count {
		names = append(names, world.Filled(s.place(i)))
	}
	goal := world.NewGoal(names)
	seen := func(event watch.EventType, object runtime.Object) {
		if secret, ok := object.(*corev1.Secret); ok && event != watch.Deleted && world.IsFilled(secret) {
			first, _, _ := strings.Cut(secret.Annotations[replaces], "/")
			goal.Reach(world.Filled(secret.Namespace, first))
		}
	}
	begun := time.Now()
	var activated time.Time
	took, cpu, err := s.timed(ctx, goal, seen, []string{"secrets"}, func(ctx context.Context) error {
		err := s.keysCommand(ctx, "rotate", "--wait", "--cache-age=0s")
		activated = time.Now()
		return err
	})
	if err != nil {
		return err
	}
	s.add("rotation, time of the command that activates", "s", activated.Sub(begun).Seconds())
	s.add(fmt.Sprintf("rotation, time to re-issue %d token Secrets", count), "s", took)
	s.add(fmt.Sprintf("rotation, CPU to re-issue %d token Secrets", count), "s", cpu)
	s.add("rotation, start of the command to the first token", "s", goal.First().Sub(begun).Seconds())
	return s.verify(ctx)
}

// keysCommand runs a command of the product, as an operator does.
func (s *scene) keysCommand(ctx context.Context, words ...string) error {
	args := append([]string{"keys"}, words...)
	args = append(args, "--service-account-key-ring="+s.keyRing(), "--kubeconfig="+s.w.Kubeconfig())
	output, err := exec.CommandContext(ctx, s.Binary.Path, args...).CombinedOutput()
	if err != nil {
		return errors.Join(fmt.Errorf("keys %s: %w", strings.Join(words, " "), err), errors.New(string(output)))
	}
	return nil
}

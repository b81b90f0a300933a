// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"

	"sa-controller-manager/test/bench/result"
	"sa-controller-manager/test/bench/world"
	"sa-controller-manager/test/measure"
)

// What is measured in several places.
const (
	complete = "time to complete all namespaces"
	fill     = "time to fill all token Secrets"
	slowdown = "a GET of another client, p99, meanwhile to before"
)

// scene is one size: its control plane and the program in it.
type scene struct {
	*Options

	w       *world.World
	size    int
	dir     string // of what outlives no scene
	running *world.Running
	heap    float64 // when it was last looked at, in bytes
	made    int     // token Secrets
}

func (s *scene) spaces() int { return max(1, s.size/10) }

// place is the namespace and the name of a token Secret and of its account.
func (s *scene) place(i int) (namespace, name string) {
	return world.Namespace(i % s.spaces()), fmt.Sprintf("t-%06d", i)
}

func (s *scene) rootCAFile() string { return filepath.Join(s.dir, "root-ca.crt") }
func (s *scene) keyRing() string    { return filepath.Join(s.dir, "keys", "ring.json") }

func (s *scene) add(metric, unit string, value float64) {
	s.Options.add(result.Key{Scenario: "scale", Metric: metric, Unit: unit, Program: column(s.size)}, value)
}

// prepare makes the files that will change, and starts the program.
func (s *scene) prepare(ctx context.Context) error {
	ca, err := os.ReadFile(s.w.CAFile())
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.rootCAFile(), ca, 0o600); err != nil {
		return err
	}
	if err := s.initRing(); err != nil {
		return err
	}
	return s.start(ctx)
}

// initRing makes a ring whose next key kube-apiserver has from its start, in a file.
func (s *scene) initRing() error {
	active, err1 := readKey(s.w.SigningKeyFile())
	second, err2 := readKey(s.nextKey())
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	next := ring.KeyOf(second)
	return ring.At(s.keyRing()).Init(active, nil, &next, time.Now())
}

func readKey(file string) (*signing.PrivateKey, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return signing.ParsePrivateKey(content)
}

func (s *scene) start(ctx context.Context) error {
	var err error
	s.running, err = s.w.Start(world.Ours(s.Binary, world.Manual), "--root-ca-file="+s.rootCAFile(),
		"--service-account-private-key-file=", "--service-account-key-ring="+s.keyRing())
	if err != nil {
		return err
	}
	return s.running.AwaitReady(ctx)
}

// grown is how much the live heap has grown since the last look, for each of count
// objects, in KiB.
func (s *scene) grown(ctx context.Context, count int) (float64, error) {
	// What is under way has to end; nothing announces it.
	if err := world.Sleep(ctx, 5*time.Second); err != nil {
		return 0, err
	}
	heap, err := s.running.Heap(ctx)
	if err != nil {
		return 0, err
	}
	grown := (heap - s.heap) / float64(count) / 1024
	s.heap = heap
	return grown, nil
}

// timed watches for a goal, does something, and returns how long it took until the goal was
// reached, and how much processor time of the program.
func (s *scene) timed(ctx context.Context, goal *world.Goal, seen world.Seen, resources []string,
	do func(context.Context) error) (took, cpu float64, err error) {
	goal.Needs(s.running)
	if err := s.w.Follow(ctx, goal, seen, resources...); err != nil {
		return 0, 0, err
	}
	before, err := s.running.CPU()
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	if err := do(ctx); err != nil {
		return 0, 0, err
	}
	ended, err := goal.Wait(ctx)
	if err != nil {
		return 0, 0, err
	}
	after, err := s.running.CPU()
	return ended.Sub(begun).Seconds(), after - before, err
}

func (s *scene) namespaces(ctx context.Context) error {
	if _, err := s.grown(ctx, 1); err != nil {
		return err
	}
	var names []string
	for i := range s.spaces() {
		names = append(names, world.Account(world.Namespace(i), "default"), world.RootCA(world.Namespace(i)))
	}
	goal := world.NewGoal(names)
	took, cpu, err := s.timed(ctx, goal, world.Notice(goal), []string{"serviceaccounts", "configmaps"}, func(ctx context.Context) error {
		return s.w.Each(ctx, s.spaces(), func(ctx context.Context, i int) error { return s.w.MakeNamespace(ctx, world.Namespace(i)) })
	})
	if err != nil {
		return err
	}
	s.add(complete, "s", took)
	s.add(complete+", CPU", "s", cpu)
	grown, err := s.grown(ctx, s.spaces())
	s.add("live heap for each namespace", "KiB", grown)
	return err
}

func (s *scene) accounts(ctx context.Context) error {
	err := s.w.Each(ctx, s.size, func(ctx context.Context, i int) error {
		namespace, name := s.place(i)
		return s.w.MakeAccount(ctx, namespace, name)
	})
	if err != nil {
		return err
	}
	grown, err := s.grown(ctx, s.size)
	s.add("live heap for each account", "KiB", grown)
	return err
}

func (s *scene) secrets(ctx context.Context) error {
	var names []string
	for i := range s.size {
		names = append(names, world.Filled(s.place(i)))
	}
	goal := world.NewGoal(names)
	took, cpu, err := s.timed(ctx, goal, world.Notice(goal), []string{"secrets"}, func(ctx context.Context) error {
		return s.w.Each(ctx, s.size, func(ctx context.Context, i int) error {
			namespace, name := s.place(i)
			return s.w.MakeTokenSecret(ctx, namespace, name, name, s.annotations(i))
		})
	})
	if err != nil {
		return err
	}
	s.made += s.size
	s.add(fill, "s", took)
	s.add(fill+", CPU", "s", cpu)
	grown, err := s.grown(ctx, s.size)
	if err != nil {
		return err
	}
	s.add("live heap for each token Secret, accounts constant", "KiB", grown)
	s.add("live heap in all", "MiB", s.heap/1024/1024)
	return s.verify(ctx)
}

// verify counts from lists.
func (s *scene) verify(ctx context.Context) error {
	census, err := s.w.Count(ctx)
	if err != nil {
		return err
	}
	if err := world.Verify(
		world.Check{What: "accounts named default", Got: census.Accounts["default"], Want: s.spaces()},
		world.Check{What: "other accounts", Got: census.Accounts["t"], Want: s.size},
		world.Check{What: "root CAs", Got: census.RootCAs, Want: s.spaces()},
		world.Check{What: "filled token Secrets", Got: census.Filled, Want: s.made},
		world.Check{What: "token Secrets that are not filled", Got: census.Unfilled, Want: 0},
	); err != nil {
		return err
	}
	return s.w.Judge(ctx, census)
}

// restart ends and begins with everything there.
func (s *scene) restart(ctx context.Context) error {
	if _, err := s.running.Stop(); err != nil {
		return err
	}
	if err := s.start(ctx); err != nil {
		return err
	}
	s.add("restart, start to ready", "s", s.running.Ready.Sub(s.running.Started).Seconds())
	if err := world.Sleep(ctx, 30*time.Second); err != nil {
		return err
	}
	memory, err := measure.MemoryOf(s.running.PID())
	if err != nil {
		return err
	}
	cpu, err := s.running.CPU()
	if err != nil {
		return err
	}
	s.add("restart, CPU of the first 30 s", "s", cpu)
	s.add("restart, peak memory, RSS", "MiB", float64(memory.Peak)/1024)
	s.add("restart, memory after 30 s, RssAnon", "MiB", float64(memory.Anon)/1024)
	if s.heap, err = s.running.Heap(ctx); err != nil {
		return err
	}
	s.add("restart, live heap", "MiB", s.heap/1024/1024)
	return nil
}

// replace swaps a file at once.
func replace(path string, content ...[]byte) error {
	if err := os.WriteFile(path+".new", bytes.Join(content, nil), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

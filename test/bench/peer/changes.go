// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/bench/result"
	"sa-controller-manager/test/bench/world"
	"sa-controller-manager/test/devcluster"
)

const (
	// tokenNamespaces is over how many namespaces the token Secrets are spread.
	tokenNamespaces = 100
	// floor is the column without a program.
	floor = "no controller"
)

// crowd is what the stages load into a world, and what processes it.
type crowd struct {
	*Options

	w       *world.World
	program *world.Running // nil for the floor
	auto    bool
}

// stage is one thing that is measured in a world: what is loaded into it, and what has to
// become true by the controllers.
type stage struct {
	name     string                          // of the scenario
	prepare  func(ctx context.Context) error // with the program running, and not counted; may be nil
	wanted   func(ctx context.Context) ([]string, error)
	size     int
	load     func(ctx context.Context, i int) error
	complete func(ctx context.Context, i int) error // what a controller would do: the floor
	verify   func(ctx context.Context) error
}

// changes are namespaces, token Secrets and deleted accounts, while the program runs: the slow key with the flags
// of every day, and the fast one where nothing else limits a program. The programs take turns: A B A B.
func (o *Options) changes(ctx context.Context) error {
	for repetition := range o.Repetitions {
		for _, v := range []struct {
			name  string
			flags []string
			key   devcluster.KeyType
		}{
			{"default flags, RSA", nil, devcluster.RSA},
			{"unlimited QPS, P-256", []string{"--kube-api-qps=1e6", "--kube-api-burst=1000000"}, devcluster.ECDSA},
		} {
			for _, name := range []string{world.KCM, world.Manual, world.Auto, floor} {
				err := o.onFresh(ctx, devcluster.Options{SigningKey: v.key}, func(ctx context.Context, w *world.World) (err error) {
					c := &crowd{Options: o, w: w, auto: name == world.Auto}
					if name != floor {
						if c.program, err = w.StartReady(ctx, o.Binary, name, v.flags...); err != nil {
							return err
						}
					}
					return c.live(ctx, v.name, name)
				})
				if err != nil {
					return fmt.Errorf("repetition %d, %s, %s: %w", repetition+1, v.name, name, err)
				}
			}
		}
	}
	return nil
}

// live measures the stages, one after the other.
func (c *crowd) live(ctx context.Context, variant, program string) error {
	for _, s := range []stage{c.namespaces(), c.secrets(), c.deletions()} {
		c.statusf("%s, %s, %s", s.name, variant, program)
		add := func(metric, unit string, value float64) {
			c.add(result.Key{Scenario: s.name, Variant: variant, Metric: metric, Unit: unit, Program: program}, value)
		}
		if s.prepare != nil {
			if err := s.prepare(ctx); err != nil {
				return err
			}
		}
		if err := world.Sleep(ctx, between); err != nil {
			return err
		}
		if c.program == nil {
			took, err := c.completed(ctx, s)
			if err != nil {
				return err
			}
			add("time", "s", took.Seconds())
			continue
		}
		before, err := c.program.Cost(ctx)
		if err != nil {
			return err
		}
		took, err := c.completed(ctx, s)
		if err != nil {
			return err
		}
		if err := world.Sleep(ctx, time.Second); err != nil { // Events are sent later
			return err
		}
		after, err := c.program.Cost(ctx)
		if err != nil {
			return err
		}
		add("time", "s", took.Seconds())
		add("CPU of the controller", "s", after.CPU-before.CPU)
		add("requests for each object", "", (after.Requests-before.Requests)/float64(s.size))
	}
	if c.program == nil {
		return nil
	}
	_, err := c.program.Stop()
	return err
}

// completed loads a stage, and returns the time from the first request until all that it wants is so. Without a
// program, the clients write what a controller would have to, too; those tokens are no tokens, so nothing is verified.
func (c *crowd) completed(ctx context.Context, s stage) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Stage, errors.New("the time for one stage is over"))
	defer cancel()
	names, err := s.wanted(ctx)
	if err != nil {
		return 0, err
	}
	goal := c.w.Goal(names...)
	begun := time.Now()
	if err := world.Each(ctx, s.size, s.load); err != nil {
		return 0, err
	}
	if c.program == nil {
		if err := world.Each(ctx, s.size, s.complete); err != nil {
			return 0, err
		}
	}
	ended, err := goal.Wait(ctx, c.program)
	if err != nil || c.program == nil {
		return ended.Sub(begun), err
	}
	return ended.Sub(begun), s.verify(ctx)
}

// place is the namespace and the name of a token Secret and of its account.
func (c *crowd) place(i int) (namespace, name string) {
	return world.Namespace(i % min(tokenNamespaces, c.Namespaces)), fmt.Sprintf("t-%06d", i)
}

// own is how many Secrets mode auto adds for so many accounts.
func (c *crowd) own(accounts int) int {
	if !c.auto {
		return 0
	}
	return accounts
}

// namespaces are created, and completed by a controller.
func (c *crowd) namespaces() stage {
	return stage{
		name: "namespaces",
		size: c.Namespaces,
		wanted: func(context.Context) (names []string, err error) {
			for i := range c.Namespaces {
				n := world.Namespace(i)
				names = append(names, world.Account(n, "default"), world.RootCA(n))
				if c.auto {
					names = append(names, world.Own(n, "default"))
				}
			}
			return names, nil
		},
		load: func(ctx context.Context, i int) error { return c.w.MakeNamespace(ctx, world.Namespace(i)) },
		complete: func(ctx context.Context, i int) error {
			_, err := c.w.Client.CoreV1().ConfigMaps(world.Namespace(i)).Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": strings.Repeat("x", 600)},
			}, metav1.CreateOptions{})
			return errors.Join(err, c.w.MakeAccount(ctx, world.Namespace(i), "default"))
		},
		verify: func(ctx context.Context) error {
			census, err := c.w.Count(ctx)
			if err != nil {
				return err
			}
			return world.Verify(
				world.Check{What: "accounts named default", Got: census.Defaults, Want: c.Namespaces},
				world.Check{What: "root CAs", Got: census.RootCAs, Want: c.Namespaces},
				world.Check{What: "token Secrets of accounts", Got: census.Own, Want: c.own(c.Namespaces)},
			)
		},
	}
}

// secrets are created, and filled by a controller.
func (c *crowd) secrets() stage {
	return stage{
		name:    "secrets",
		size:    c.Secrets,
		prepare: c.makeAccounts,
		wanted: func(context.Context) (names []string, err error) {
			for i := range c.Secrets {
				names = append(names, world.Filled(c.place(i)))
			}
			return names, nil
		},
		load: func(ctx context.Context, i int) error {
			namespace, name := c.place(i)
			return c.w.MakeTokenSecret(ctx, namespace, name, name)
		},
		complete: func(ctx context.Context, i int) error {
			namespace, name := c.place(i)
			patch, err := json.Marshal(map[string]any{"data": map[string][]byte{
				"token": []byte(strings.Repeat("x", 900)), "ca.crt": []byte(strings.Repeat("x", 600)), "namespace": []byte(namespace),
			}})
			if err != nil {
				return err
			}
			_, err = c.w.Client.CoreV1().Secrets(namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		},
		verify: func(ctx context.Context) error { return c.verifySecrets(ctx, 0) },
	}
}

// makeAccounts makes one for each Secret to come.
func (c *crowd) makeAccounts(ctx context.Context) error {
	var names []string
	for i := range c.Secrets {
		namespace, name := c.place(i)
		names = append(names, world.Account(namespace, name))
		if c.auto {
			names = append(names, world.Own(namespace, name))
		}
	}
	goal := c.w.Goal(names...)
	if err := world.Each(ctx, c.Secrets, func(ctx context.Context, i int) error {
		namespace, name := c.place(i)
		return c.w.MakeAccount(ctx, namespace, name)
	}); err != nil {
		return err
	}
	_, err := goal.Wait(ctx, c.program)
	return err
}

func (c *crowd) verifySecrets(ctx context.Context, deleted int) error {
	census, err := c.w.Count(ctx)
	if err != nil {
		return err
	}
	left := c.Secrets - deleted
	if err := world.Verify(
		world.Check{What: "accounts with a token Secret", Got: census.Others, Want: left},
		world.Check{What: "filled token Secrets", Got: census.Filled, Want: left},
		world.Check{What: "token Secrets that are not filled", Got: census.Unfilled, Want: 0},
		world.Check{What: "token Secrets of accounts", Got: census.Own, Want: c.own(c.Namespaces + left)},
	); err != nil || left == 0 {
		return err
	}
	return c.w.Accepted(ctx, census)
}

// deletions are of accounts. In mode auto an account has two Secrets, and both have to go.
func (c *crowd) deletions() stage {
	return stage{
		name: "deletions",
		size: c.Accounts,
		wanted: func(ctx context.Context) (names []string, err error) {
			census, err := c.w.Count(ctx)
			if err != nil {
				return nil, err
			}
			for i := range c.Accounts {
				namespace, account := c.place(i)
				for _, secret := range census.Tokens[namespace+"/"+account] {
					names = append(names, world.Gone(namespace, secret))
				}
			}
			return names, nil
		},
		load: func(ctx context.Context, i int) error {
			namespace, name := c.place(i)
			return c.w.DeleteAccount(ctx, namespace, name)
		},
		complete: func(ctx context.Context, i int) error {
			namespace, name := c.place(i)
			return c.w.Client.CoreV1().Secrets(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		},
		verify: func(ctx context.Context) error { return c.verifySecrets(ctx, c.Accounts) },
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"fmt"
	"time"

	"sa-controller-manager/test/bench/world"
)

// tokenNamespaces is over how many namespaces the token Secrets are spread.
const tokenNamespaces = 100

// stage is one thing that is measured in a world: what is loaded into it, and what has to
// become true by the controllers.
type stage struct {
	name     string                          // of the scenario
	prepare  func(ctx context.Context) error // with the program running, and not counted
	wanted   func(ctx context.Context) ([]string, error)
	follows  []string
	load     func(ctx context.Context) error
	verify   func(ctx context.Context) error
	complete func(ctx context.Context, i int) error // what a controller would do: the floor
	size     int
}

// between the stages a limiter of requests fills up again (KCM's in 1.5 s), and what was begun ends.
const between = 2 * time.Second

// prepared does what goes before the load, if anything, and waits.
func (s stage) prepared(ctx context.Context) error {
	if s.prepare != nil {
		if err := s.prepare(ctx); err != nil {
			return err
		}
	}
	return world.Sleep(ctx, between)
}

// crowd is what the stages load, and who is to look after it.
type crowd struct {
	*Options

	w    *world.World
	auto bool
}

func (c *crowd) stages() []stage { return []stage{c.namespaces(), c.secrets(), c.deletions()} }

// place is the namespace and the name of a token Secret and of its account.
func (c *crowd) place(i int) (namespace, name string) {
	return world.Namespace(i % min(tokenNamespaces, c.Namespaces)), fmt.Sprintf("t-%05d", i)
}

// namespaces are created, and completed by a controller.
func (c *crowd) namespaces() stage {
	return stage{
		name:    "namespaces",
		size:    c.Namespaces,
		follows: []string{"serviceaccounts", "configmaps", "secrets"},
		wanted: func(context.Context) ([]string, error) {
			var names []string
			for i := range c.Namespaces {
				n := world.Namespace(i)
				names = append(names, world.Account(n, "default"), world.RootCA(n))
				if c.auto {
					names = append(names, world.Own(n, "default"))
				}
			}
			return names, nil
		},
		load: func(ctx context.Context) error {
			return c.w.Each(ctx, c.Namespaces, func(ctx context.Context, i int) error { return c.w.MakeNamespace(ctx, world.Namespace(i)) })
		},
		complete: func(ctx context.Context, i int) error { return c.w.CompleteNamespace(ctx, world.Namespace(i)) },
		verify: func(ctx context.Context) error {
			census, err := c.w.Count(ctx)
			if err != nil {
				return err
			}
			return world.Verify(
				world.Check{What: "accounts named default", Got: census.Accounts["default"], Want: c.Namespaces},
				world.Check{What: "root CAs", Got: census.RootCAs, Want: c.Namespaces},
				world.Check{What: "token Secrets of accounts", Got: census.Own, Want: c.own(0)},
			)
		},
	}
}

// own is how many Secrets mode auto adds.
func (c *crowd) own(accounts int) int {
	if !c.auto {
		return 0
	}
	return c.Namespaces + accounts
}

// secrets are created, and filled by a controller.
func (c *crowd) secrets() stage {
	return stage{
		name:    "secrets",
		size:    c.Secrets,
		follows: []string{"secrets"},
		prepare: c.makeAccounts,
		wanted: func(context.Context) ([]string, error) {
			var names []string
			for i := range c.Secrets {
				names = append(names, world.Filled(c.place(i)))
			}
			return names, nil
		},
		load: func(ctx context.Context) error {
			return c.w.Each(ctx, c.Secrets, func(ctx context.Context, i int) error {
				namespace, name := c.place(i)
				return c.w.MakeTokenSecret(ctx, namespace, name, name, nil)
			})
		},
		complete: func(ctx context.Context, i int) error { return c.w.CompleteSecret(ctx, namespaceAndName(c.place(i))) },
		verify:   func(ctx context.Context) error { return c.verifySecrets(ctx, 0) },
	}
}

func namespaceAndName(namespace, name string) [2]string { return [2]string{namespace, name} }

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
	goal := world.NewGoal(names)
	following, stop := context.WithCancel(ctx)
	defer stop()
	if err := c.w.Follow(following, goal, world.Notice(goal), "serviceaccounts", "secrets"); err != nil {
		return err
	}
	err := c.w.Each(ctx, c.Secrets, func(ctx context.Context, i int) error {
		namespace, name := c.place(i)
		return c.w.MakeAccount(ctx, namespace, name)
	})
	if err != nil {
		return err
	}
	_, err = goal.Wait(ctx)
	return err
}

func (c *crowd) verifySecrets(ctx context.Context, deleted int) error {
	census, err := c.w.Count(ctx)
	if err != nil {
		return err
	}
	left := c.Secrets - deleted
	if err := world.Verify(
		world.Check{What: "accounts with a token Secret", Got: census.Accounts["t"], Want: left},
		world.Check{What: "filled token Secrets", Got: census.Filled, Want: left},
		world.Check{What: "token Secrets that are not filled", Got: census.Unfilled, Want: 0},
		world.Check{What: "token Secrets of accounts", Got: census.Own, Want: c.own(left)},
	); err != nil || left == 0 {
		return err
	}
	return c.w.Judge(ctx, census)
}

// deletions are of accounts. In mode auto an account has two Secrets, and both have to go.
func (c *crowd) deletions() stage {
	return stage{
		name:    "deletions",
		size:    c.Accounts,
		follows: []string{"secrets"},
		wanted: func(ctx context.Context) ([]string, error) {
			census, err := c.w.Count(ctx)
			if err != nil {
				return nil, err
			}
			var names []string
			for i := range c.Accounts {
				namespace, account := c.place(i)
				for _, secret := range census.Tokens[namespace+"/"+account] {
					names = append(names, world.Gone(namespace, secret))
				}
			}
			return names, nil
		},
		load: func(ctx context.Context) error {
			return c.w.Each(ctx, c.Accounts, func(ctx context.Context, i int) error {
				namespace, name := c.place(i)
				return c.w.DeleteAccount(ctx, namespace, name)
			})
		},
		complete: func(ctx context.Context, i int) error { return c.w.DeleteSecret(ctx, namespaceAndName(c.place(i))) },
		verify:   func(ctx context.Context) error { return c.verifySecrets(ctx, c.Accounts) },
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/test/await"
)

// The names the story uses.
const (
	namespace = "default"
	account   = "default"
)

// steps is the story in order. A step may rely on those before it.
func steps() []step {
	return []step{
		{
			title:  "Clients at work",
			expect: "a requested token and a token Secret, both signed with the RSA key, and clients that use them",
			run:    clientsAtWork,
		},
		{
			title:  "A rotation to ECDSA is started",
			expect: "a new key that kube-apiserver publishes and that does not sign",
			run:    rotationIsStarted,
		},
		{
			title:  "Too early, the command refuses",
			expect: "a refusal that says until when to wait, and the former key signing",
			run:    tooEarly,
		},
		{
			title:  "The new key signs",
			expect: "new tokens signed with the ECDSA key",
			run:    newKeySigns,
		},
		{
			title:  "The rotation is completed",
			expect: "phase completed, and the ECDSA key signing",
			run:    rotationIsCompleted,
		},
		{
			title:  "And rolled back",
			expect: "new tokens signed with the RSA key again",
			run:    rolledBack,
		},
		{
			title:  "Another rotation, in one go",
			expect: "new tokens signed with a third key",
			run:    rotatedAgain,
		},
	}
}

func clientsAtWork(ctx context.Context, s *story) error {
	// The manager makes it; who comes first has to wait.
	if _, err := await.ServiceAccounts(ctx, s.client, namespace, await.Named[*corev1.ServiceAccount](account)); err != nil {
		return err
	}
	bound, legacy, err := s.call(ctx, s.first)
	if err != nil {
		return err
	}
	// kube-apiserver has to have seen the Secret before its token is good.
	if err := await.Poll(ctx, func(ctx context.Context) error { return s.use(ctx, legacy) }); err != nil {
		return err
	}
	s.load = startLoad(s, bound, legacy)
	s.Notef("started", "four clients: two request tokens and use them, two use what they have")
	return nil
}

func rotationIsStarted(ctx context.Context, s *story) error {
	ring, err := s.act(ctx, "rotate", "start", "--algorithm=P-256")
	if err != nil {
		return err
	}
	if s.second, err = ring.key("next"); err != nil {
		return err
	}
	s.Notef("observed", "the next key is %s", s.second)
	if err := s.awaitPublished(ctx, s.second); err != nil {
		return err
	}
	if n := s.load.signedBy(s.second); n > 0 {
		return fmt.Errorf("%d tokens are signed with the next key", n)
	}
	_, _, err = s.call(ctx, s.first)
	return err
}

func tooEarly(ctx context.Context, s *story) error {
	s.Notef("command", "keys rotate activate")
	_, err := s.keys(ctx, "rotate", "activate")
	refused, ok := errors.AsType[*refusedError](err)
	if !ok || !strings.Contains(refused.text, "wait until") {
		return fmt.Errorf("no refusal that says until when to wait, but: %w", orNil(err))
	}
	s.Notef("refused", "%s", strings.ReplaceAll(refused.text, ": ", ":\n"))
	return nil
}

func newKeySigns(ctx context.Context, s *story) error {
	s.Notef("because", "no client here keeps a copy of the key set, the wait is skipped")
	if _, err := s.act(ctx, "rotate", "activate", "--force"); err != nil {
		return err
	}
	return s.signs(ctx, s.second)
}

func rotationIsCompleted(ctx context.Context, s *story) error {
	ring, err := s.act(ctx, "rotate", "complete")
	if err != nil {
		return err
	}
	s.Notef("observed", "the rotation is %s, generation %d", ring.Phase, ring.Generation)
	return s.signs(ctx, s.second)
}

func rolledBack(ctx context.Context, s *story) error {
	if _, err := s.act(ctx, "rollback"); err != nil {
		return err
	}
	return s.signs(ctx, s.first)
}

func rotatedAgain(ctx context.Context, s *story) error {
	ring, err := s.act(ctx, "rotate", "start", "--algorithm=P-256", "--cache-age=1s")
	if err != nil {
		return err
	}
	if s.third, err = ring.key("next"); err != nil {
		return err
	}
	if err := s.awaitPublished(ctx, s.third); err != nil {
		return err
	}
	if _, err := s.act(ctx, "rotate", "complete", "--wait"); err != nil {
		return err
	}
	return s.signs(ctx, s.third)
}

// signs wants new tokens of all kinds to be signed with k.
func (s *story) signs(ctx context.Context, k key) error {
	before := s.load.signedBy(k)
	if _, _, err := s.call(ctx, k); err != nil {
		return err
	}
	if err := s.load.more(ctx, callsPerStep); err != nil {
		return err
	}
	if s.load.signedBy(k) == before {
		return fmt.Errorf("the clients get no token that is signed with %s", k)
	}
	return nil
}

func orNil(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

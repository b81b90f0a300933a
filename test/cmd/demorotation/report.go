// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
)

// report says what became of the calls, and who signed.
func (s *story) report() {
	l := s.load
	s.Linef("\nWhat the clients did meanwhile")
	made, failed := 0, 0
	for _, kind := range kinds() {
		s.Linef("%8d %-50s %d failed", l.made[kind], kind, l.failed[kind])
		made, failed = made+l.made[kind], failed+l.failed[kind]
	}
	s.Linef("%8d %-50s %d failed", made, "requests", failed)
	s.Linef("%8d TokenReviews of %d tokens from every stage of the story, all accepted", s.reviews, len(s.witnesses))
	s.Linef("\nWho signed the requested tokens")
	for _, k := range []key{s.first, s.second, s.third} {
		s.Linef("%8d %s", l.signed[k], k)
	}
}

// judge decides what no single step can: nothing failed, nobody else signed, nothing was
// restarted.
func (s *story) judge(ctx context.Context) error {
	l := s.load
	if l.first != nil {
		return fmt.Errorf("a call has failed; the first one: %w", l.first)
	}
	known := l.signed[s.first] + l.signed[s.second] + l.signed[s.third]
	if known != l.made[requestKind] {
		return fmt.Errorf("%d tokens are signed with other keys than these", l.made[requestKind]-known)
	}
	now, err := s.startTimes(ctx)
	if err != nil {
		return err
	}
	s.Linef("")
	for _, name := range []string{"kube-apiserver", "sa-controller-manager"} {
		if now[name] != s.started[name] {
			return errors.New(name + " was restarted")
		}
		s.Linef("%s is the same process as at the beginning.", name)
	}
	return nil
}

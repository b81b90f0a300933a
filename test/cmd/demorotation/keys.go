// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// keyRing is what the commands print for programs.
type keyRing struct {
	Generation int64
	Phase      string
	Keys       []struct{ ID, Algorithm, Role string }
}

// key is the one key that has a role.
func (r keyRing) key(role string) (key, error) {
	for _, k := range r.Keys {
		if k.Role == role {
			return key{k.ID, k.Algorithm}, nil
		}
	}
	return key{}, fmt.Errorf("no key is %s", role)
}

// refusedError is what a command said that could not do it.
type refusedError struct{ text string }

func (r *refusedError) Error() string { return r.text }

// keys runs a command of the product, as an operator does.
func (s *story) keys(ctx context.Context, words ...string) (keyRing, error) {
	args := append([]string{"keys"}, words...)
	args = append(args, "--service-account-key-ring="+s.ring(), "-o=json")
	// The ring is made before there is a cluster to ask.
	if words[0] != "init" {
		args = append(args, "--kubeconfig="+s.cluster.Kubeconfig())
	}
	command := exec.CommandContext(ctx, s.binary.Path, args...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 {
			return keyRing{}, &refusedError{strings.TrimSpace(strings.TrimPrefix(stderr.String(), "Error: "))}
		}
		return keyRing{}, fmt.Errorf("keys %s: %w", strings.Join(words, " "), err)
	}
	var ring keyRing
	if err := json.Unmarshal(stdout.Bytes(), &ring); err != nil {
		return keyRing{}, fmt.Errorf("read what keys %s prints: %w", strings.Join(words, " "), err)
	}
	return ring, nil
}

// act runs a command that changes the ring, and returns when the manager follows.
func (s *story) act(ctx context.Context, words ...string) (keyRing, error) {
	s.Notef("command", "keys %s", strings.Join(words, " "))
	ring, err := s.keys(ctx, words...)
	if err != nil {
		return keyRing{}, err
	}
	return ring, s.manager.AwaitLog(ctx, fmt.Sprintf("generation=%d signs=", ring.Generation))
}

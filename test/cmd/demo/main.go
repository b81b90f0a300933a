// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo starts a real control plane and sa-controller-manager beside it and shows, in
// numbered steps, what the manager does:
//
//	demo              accounts, token Secrets and Pods
//	demo rotation     a rotation of signing keys while clients request and use tokens
//	demo hsm          keys that move from a file to an HSM, a transit engine, a foreign signer, and back
//	demo signer       rotations beside a stock kube-controller-manager, where nothing is taken over
//	demo federation   published keys, which a second cluster verifies with while they rotate
//
// Every step is verified against the API. The exit code is 0 only if all steps hold.
//
// The output states what was observed. Tokens are decoded and printed without their signatures,
// so that the output can be shared. The command removes everything it has created, also after
// Ctrl-C.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() { os.Exit(run(strings.Join(os.Args[1:], " "))) }

func run(name string) int {
	demonstrate, ok := map[string]func(context.Context, *story) error{
		"": showTokens, "rotation": showRotation, "hsm": showHSM, "federation": showFederation, "signer": showSigner,
	}[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "demo: unknown argument %q, must be \"rotation\", \"hsm\", \"federation\", \"signer\" or absent\n", name)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first Ctrl-C stops the demonstration in order. The second one kills it.
	context.AfterFunc(ctx, stop)

	s := &story{out: os.Stdout, begun: time.Now()}
	err := demonstrate(ctx, s)
	if s.cluster != nil {
		err = errors.Join(err, s.cluster.Stop())
	}
	switch {
	case ctx.Err() != nil:
		s.linef("\nInterrupted.")
		return 130 // what a shell reports for a process that Ctrl-C ended
	case err != nil:
		s.linef("\nFAILED: %s", err)
		return 1
	}
	s.linef("\nAll %d steps verified in %s.", s.steps, rounded(time.Since(s.begun)))
	return 0
}

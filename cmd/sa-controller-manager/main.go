// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sa-controller-manager keeps the ServiceAccounts of a Kubernetes
// cluster and signs their tokens. See package commands for its command line.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"sa-controller-manager/cmd/sa-controller-manager/commands"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal drains. It also gives signals their default action back,
	// so that a second one ends the process immediately.
	context.AfterFunc(ctx, stop)
	os.Exit(commands.Main(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

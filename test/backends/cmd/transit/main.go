// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command transit serves the transit engine of package vault until it gets a signal. It writes what
// a client needs into a directory, and last of all, once it answers, the file uri of its key:
//
//	transit DIRECTORY
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/hashicorp/vault/sdk/logical"
	"sa-controller-manager/internal/atomicfile"

	"sa-controller-manager/test/backends/vault"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "transit:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	v, err := vault.Start(ctx, dir)
	if err != nil {
		return err
	}
	defer v.Stop()
	if err := v.Call(ctx, logical.UpdateOperation, "keys/transit", map[string]any{"type": "ecdsa-p256"}); err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(dir, "uri"), []byte(v.URI("transit")), 0o600); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

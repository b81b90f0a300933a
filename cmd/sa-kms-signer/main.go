// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command sa-kms-signer signs with keys that stay in an HSM or a key management service. It serves
// each key on a unix socket of its own as an ExternalJWTSigner (KEP-740), where
// sa-controller-manager uses it as one more key of its ring.
//
// The path of a signature:
//
//  1. serve.go has a process of its own for each file in --keys-dir, and follows the directory.
//  2. key.go is that process. It opens the key, proves that it signs, and serves it until it does not.
//  3. pkcs11.go, transit.go and cloud.go are the backends. They find one key by a URI, as a crypto.Signer.
//
// A call of a PKCS#11 library cannot be interrupted, and what the library has of a token that was away cannot be
// repaired. So a process ends with its library, and the next one begins without anything of it.
//
// It makes no key: the operator of the HSM or the service does that with its own tool.
//
// The command is a module of its own: PKCS#11 needs cgo and a dynamically linked binary, and the
// product stays static. Without cgo the pkcs11 backend is left out and says so.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// verbosity is klog's flag, which the processes of keys get as well.
const verbosity = "v"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	root := &cobra.Command{
		Use: "sa-kms-signer", Short: "Sign service account tokens with keys of an HSM or a key management service",
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.AddCommand(serveCommand(), &cobra.Command{
		Use: "key serve|check NAME SOCKET-DIR", Hidden: true, Args: cobra.ExactArgs(3), // with the key's file on standard input
		Run: func(cmd *cobra.Command, args []string) {
			keyProcess(cmd.Context(), args[0] == "check", args[1], args[2])
		},
	})
	klog.InitFlags(nil)
	root.PersistentFlags().AddGoFlag(flag.Lookup(verbosity))
	if err := root.ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "Error: %v\n", err)
		os.Exit(1)
	}
}

func serveCommand() *cobra.Command {
	s := &supervisor{follows: map[string]context.CancelFunc{}, reasons: map[string]error{}}
	cmd := &cobra.Command{
		Use:   "serve --keys-dir=DIR --socket-dir=DIR",
		Short: "Serve each key of a directory on a socket of its own",
		Long: `Serve each key NAME.yaml of --keys-dir on --socket-dir/NAME.sock. Such a file is

  uri: pkcs11:token=sa;object=sa-2026?module-path=/usr/lib/softhsm/libsofthsm2.so&pin-source=/etc/sa-kms-signer/pin
  algorithm: P-256

A file that is added, changed or removed takes effect without a restart. A file with an error keeps the
key that it replaces, and is tried again. While a key does not sign, --socket-dir/not-served says which
and why. A PIN that a token has refused is never tried again: --socket-dir/refused-pins has a hash of it.

A process that can connect to the socket of a key can have any token signed: the socket has mode 0600,
and only processes of the same user are answered.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.verbosity = cmd.Flag(verbosity).Value.String()
			return s.serve(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&s.keysDir, "keys-dir", "", "Directory with a file NAME.yaml for each key.")
	cmd.Flags().StringVar(&s.socketDir, "socket-dir", "", "Directory for the sockets NAME.sock.")
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { _ = cmd.MarkFlagRequired(flag.Name) })
	return cmd
}

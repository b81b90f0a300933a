// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/keys"
	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/internal/printers"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
	"sa-controller-manager/tokens/inspect"
)

func (o *inspectOptions) run(ctx context.Context, client cli.ClientFunc, token string, stdout io.Writer) error {
	ctx, cancel := cli.AnswerWithin(ctx, o.timeout)
	defer cancel()
	known, err := o.known(ctx, client, token)
	if err != nil {
		return err
	}
	report := inspect.Evaluate(token, known)
	for i := range report.Notes {
		switch note := &report.Notes[i]; note.Code {
		case "issuer-not-compared":
			note.Remedy = "give --service-account-issuer"
		case "not-reviewed":
			note.Remedy = "give --cluster"
		}
	}
	if err := printers.Document(stdout, o.output.Format, &report, report.Text); err != nil {
		return err
	}
	switch report.Verdict {
	case inspect.Valid:
		return nil
	case inspect.Invalid:
		return cli.ErrFindings
	default: // the only finding says why
		return fmt.Errorf("it is unknown whether the token is valid: %s; give --service-account-key-file, --jwks or --cluster",
			report.Findings[0].Message)
	}
}

// known gathers what the flags know of.
func (o *inspectOptions) known(ctx context.Context, client cli.ClientFunc, token string) (inspect.Known, error) {
	known := inspect.Known{Now: time.Now(), Issuers: o.issuers}
	var err error
	if known.Keys, err = keys.Read(&o.keys); err != nil {
		return known, err
	}
	if o.jwks != "" {
		published, err := keys.ReadPublished(ctx, client, &o.connection, o.jwks, o.caFile)
		if err != nil {
			return known, err
		}
		place, _, _ := strings.Cut(o.jwks, "?") // which may give access
		known.Keys = append(known.Keys, tokens.UsableKeys(published, "--jwks="+place)...)
	}
	if !o.cluster {
		return known, nil
	}
	connected, err := client(&o.connection)
	if err != nil {
		return known, err
	}
	return known, askCluster(ctx, connected, token, &known)
}

// askCluster adds what kube-apiserver knows. It need publish neither keys nor an issuer, as long as
// it reviews the token.
func askCluster(ctx context.Context, client kubernetes.Interface, token string, known *inspect.Known) error {
	var err error
	if known.Review, err = inspect.Ask(ctx, client.AuthenticationV1().TokenReviews(), token); err != nil {
		return err
	}
	if published, err := keyprobe.PublishedKeys(ctx, apiservers.Getter(client)); err == nil {
		known.Keys = append(known.Keys, tokens.UsableKeys(published, "kube-apiserver's "+signing.JWKSPath)...)
	}
	if len(known.Issuers) > 0 {
		return nil
	}
	if issuer, err := keyprobe.LookUpIssuer(ctx, client); err == nil { // else it is not compared
		known.Issuers = []string{issuer}
	}
	return nil
}

// readToken reads the token from the file or standard input. Errors hold nothing of it.
func readToken(cmd *cobra.Command, args []string) (string, error) {
	name, input := "standard input", cmd.InOrStdin()
	if len(args) == 1 && args[0] != "-" && args[0] != "" {
		file, err := os.Open(args[0])
		if err != nil {
			return "", fmt.Errorf("read the token: %w", err)
		}
		defer func() { _ = file.Close() }() // read only: nothing can be lost
		name, input = args[0], file
	} else if cli.TerminalWidth(cmd.ErrOrStderr()) > 0 && cli.TerminalWidth(input) > 0 {
		signal.Reset(os.Interrupt) // there is nothing to clean up, and no context ends the read of a terminal
		fmt.Fprintln(cmd.ErrOrStderr(), "Paste the token, then press Ctrl-D on a line of its own.")
	}
	token, err := inspect.Read(input)
	if err != nil {
		return "", fmt.Errorf("read the token from %s: %w", name, err)
	}
	return token, nil
}

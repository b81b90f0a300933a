// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/keys"
	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/internal/printers"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
	"sa-controller-manager/tokens/inspect"
)

const inspectDescription = `Print the claims and the key of a ServiceAccount token, and whether it is valid or why not. The
token comes from a file or from standard input, with or without "Bearer " in front; never from an
argument, because arguments are in the list of processes and in the history of the shell.

Keys come from files, from a JWKS, or with --cluster from kube-apiserver, which then also
reviews the token (TokenReview) and decides. With that, it sets the label
kubernetes.io/legacy-token-last-used of a token Secret to today. Nothing else is changed,
and the token is sent nowhere without --cluster.

Header and claims are printed without the signature, so the output gives no access.

Permissions, for --cluster only: create tokenreviews, get ` + signing.JWKSPath + ` and
` + signing.DiscoveryPath + `.

Exit code: 0 if it is valid, 2 if it is not, and 1 if that is unknown.`

const inspectExamples = `  # The token of a Secret, against kubeadm's key.
  kubectl -n shop get secret robot -o jsonpath='{.data.token}' | base64 -d |
    sa-controller-manager tokens inspect --service-account-key-file=/etc/kubernetes/pki/sa.pub

  # The token of the Pod that this runs in, against a published JWKS.
  sa-controller-manager tokens inspect /var/run/secrets/kubernetes.io/serviceaccount/token \
    --jwks=https://issuer.example.com/keys.json --service-account-issuer=https://issuer.example.com

  # The review of the cluster itself.
  kubectl create token default | sa-controller-manager tokens inspect --cluster --kubeconfig=admin.conf -o json`

// inspectOptions are the flags of the command.
type inspectOptions struct {
	connection options.Connection
	keys       options.Keys
	issuers    []string
	jwks       string
	caFile     string
	cluster    bool
	timeout    time.Duration
	output     cli.Output
}

// NewInspectCommand is the command "tokens inspect".
func NewInspectCommand(client cli.ClientFunc) *cobra.Command {
	o := &inspectOptions{timeout: 10 * time.Second}
	cmd := &cobra.Command{
		Use:     "inspect [FILE|-]",
		Short:   "Print what a token holds, its key, and whether it is valid or why not",
		Long:    inspectDescription,
		Example: inspectExamples,
		Args:    oneFile,
		RunE: cli.WhenValid(o.validate, func(cmd *cobra.Command, args []string) error {
			token, err := readToken(cmd, args)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), client, token, cmd.OutOrStdout())
		}),
	}
	keys.AddKeyFlags(cmd, &o.keys)
	cli.AddConnectionFlags(cmd, &o.connection)
	cmd.Flags().StringArrayVar(&o.issuers, "service-account-issuer", o.issuers,
		"`Issuer` of bound tokens, as kube-apiserver has it. May be given several times. Without it, and without --cluster, it is not compared.")
	cmd.Flags().StringVar(&o.jwks, "jwks", o.jwks, "JWKS with keys that verify: an https URL, a file, or \"cluster\" for kube-apiserver's, "+
		"at this `place`.")
	keys.AddCAFile(cmd, &o.caFile)
	cmd.Flags().BoolVar(&o.cluster, "cluster", o.cluster, "Take keys and issuer from kube-apiserver, and have it review the token.")
	cmd.Flags().DurationVar(&o.timeout, "timeout", o.timeout, "Timeout of --jwks and --cluster together.")
	o.output.AddFlag(cmd, "text", "json", "yaml")
	return cmd
}

// oneFile takes the name of a file or none, and repeats no argument.
func oneFile(cmd *cobra.Command, args []string) error {
	if err := cli.RefuseTokens(cmd, args); err != nil {
		return err
	}
	if len(args) > 1 {
		return &cli.UsageError{Command: cmd.CommandPath(),
			Err: fmt.Errorf("%q takes one file at most, got %d arguments", cmd.CommandPath(), len(args))}
	}
	return nil
}

func (o *inspectOptions) validate() []error {
	p := options.Problems(o.output.Validate())
	for _, issuer := range o.issuers {
		if issuer == "" {
			p.Add("service-account-issuer", issuer, "must be an issuer; leave the flag out if there is none")
		}
	}
	p.Positive("timeout", o.timeout)
	p.Asks(o.cluster || o.jwks == keys.AtCluster, o.connection.Context)
	return append(p, o.keys.Validate()...)
}

func (o *inspectOptions) run(ctx context.Context, client cli.ClientFunc, token string, stdout io.Writer) error {
	ctx, cancel := cli.AnswerWithin(ctx, o.timeout)
	defer cancel()
	known, err := o.known(ctx, client, token)
	if err != nil {
		return err
	}
	report := inspect.Evaluate(token, known)
	if err := printers.Document(stdout, o.output.Format, &report, report.Text); err != nil {
		return err
	}
	switch report.Verdict {
	case inspect.Valid:
		return nil
	case inspect.Invalid:
		return cli.ErrFindings
	default: // the only finding says why
		return fmt.Errorf("it is unknown whether the token is valid: %s", report.Findings[0].Message)
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

// maxInput is more than any token, in bytes. What is longer is refused by its length, and by
// nothing else.
const maxInput = 128 << 10

// readToken reads the token from the file or standard input. White space around it, and what HTTP
// puts in front, is no part of it. Errors hold nothing of it.
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
		fmt.Fprintln(cmd.ErrOrStderr(), "Paste the token, then press Ctrl-D on a line of its own.")
	}
	data, err := io.ReadAll(io.LimitReader(input, maxInput+1))
	if err != nil {
		return "", fmt.Errorf("read the token from %s: %w", name, err)
	}
	if len(data) > maxInput {
		return "", fmt.Errorf("read the token from %s: it is larger than %d bytes", name, maxInput)
	}
	token := strings.TrimSpace(string(data))
	if scheme, rest, found := strings.Cut(token, " "); found && strings.EqualFold(scheme, "bearer") {
		token = strings.TrimSpace(rest)
	}
	if token == "" {
		return "", errors.New("read the token from " + name + ": it is empty")
	}
	if decoded, err := base64.StdEncoding.DecodeString(token); err == nil && bytes.Count(decoded, []byte(".")) == 2 {
		return "", errors.New("read the token from " + name + ": it is encoded as in a Secret, pipe it through base64 -d")
	}
	return token, nil
}

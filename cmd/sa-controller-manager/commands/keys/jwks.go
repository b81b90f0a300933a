// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyring/relying"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/printers"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

const jwksDescription = `Print the keys that tokens are verified with as a JSON Web Key Set (RFC 7517), for
relying parties outside of the cluster: the same bytes for each key as kube-apiserver's
` + signing.JWKSPath + `. Only public halves are in it.

With --check what is published already is compared with the keys:

  missing   a key is not published: relying parties refuse its tokens
  extra     a key is published that is none of ours: its tokens are accepted
  differs   another key or algorithm is published under a key's ID
  leaked    the document holds the private half of a key: rotate at once

A URL must be https. It is asked without credentials. Exit code: 2 if a key is not the same.
--check=cluster needs what the ClusterRole system:service-account-issuer-discovery grants.`

// checkTimeout is how long --check may take.
const checkTimeout = 10 * time.Second

// jwksOptions are the flags of "keys jwks".
type jwksOptions struct {
	connection options.Connection
	keys       options.Keys
	check      string
	caFile     string
	output     cli.Output
}

// NewJWKSCommand is the command "keys jwks", which the kubectl plugin has too.
func NewJWKSCommand(client cli.ClientFunc) *cobra.Command {
	o := &jwksOptions{}
	cmd := &cobra.Command{
		Use:   "jwks",
		Short: "Print the public keys for relying parties, or compare what is published with them",
		Long:  jwksDescription,
		Example: `  # What relying parties are to know, of kubeadm's key.
  sa-controller-manager keys jwks --service-account-key-file=/etc/kubernetes/pki/sa.pub >keys.json`,
		Args: cli.NoArguments,
	}
	cmd.RunE = cli.WhenValid(func() []error { return o.validate(cmd) }, func(cmd *cobra.Command, _ []string) error {
		return o.run(cmd.Context(), client, cmd.OutOrStdout(), cmd.ErrOrStderr())
	})
	AddKeyFlags(cmd, &o.keys)
	cli.AddConnectionFlags(cmd, &o.connection)
	cmd.Flags().StringVar(&o.check, "check", o.check, "Compare the JWKS at this `place` with the keys: an https URL, a file, "+
		"or \"cluster\" for kube-apiserver's.")
	AddCAFile(cmd, &o.caFile)
	o.output.AddFlag(cmd, "table", "json", "yaml")
	cmd.Flags().Lookup("output").Usage = "With --check, the format: \"table\", \"json\", \"yaml\" or \"jsonpath=TEMPLATE\"."
	return cmd
}

func (o *jwksOptions) validate(cmd *cobra.Command) []error {
	p := options.Problems(o.output.Validate())
	if cmd.Flags().Changed("output") && o.check == "" {
		p.Add("output", o.output.Format, "is for --check; a JWKS is always JSON")
	}
	p.Asks(o.check == AtCluster, o.connection.Context)
	return append(p, o.keys.Validate()...)
}

func (o *jwksOptions) run(ctx context.Context, client cli.ClientFunc, stdout, stderr io.Writer) error {
	ring, err := Read(&o.keys)
	if err != nil {
		return err
	}
	if len(ring) == 0 {
		return ErrNoKeys
	}
	if o.check != "" {
		return o.compare(ctx, client, ring, stdout, stderr)
	}
	document, err := signing.MarshalJWKS(signing.NewKeySet(tokens.PublicKeys(ring)...).All())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s\n", document)
	return err
}

func (o *jwksOptions) compare(ctx context.Context, client cli.ClientFunc, ring []signing.Key, stdout, stderr io.Writer) error {
	ctx, cancel := cli.AnswerWithin(ctx, checkTimeout)
	defer cancel()
	documents, err := ReadPublished(ctx, client, &o.connection, o.check, o.caFile)
	if err != nil {
		return err
	}
	return compared(relying.Compare(ring, documents), o.output.Format, stdout, stderr)
}

// compared prints a comparison, and returns cli.ErrFindings unless all keys are the same.
func compared(lines []relying.Line, format string, stdout, stderr io.Writer) error {
	if err := Print(stdout, lines, format); err != nil {
		return err
	}
	if slices.ContainsFunc(lines, func(line relying.Line) bool { return line.Result != relying.Same }) {
		fmt.Fprintln(stderr, "The published keys are not the given ones.")
		return cli.ErrFindings
	}
	return nil
}

// Print writes a comparison as "table", "json" or "yaml".
func Print(w io.Writer, lines []relying.Line, output string) error {
	document := struct {
		printers.Head
		Keys []relying.Line `json:"keys"`
	}{printers.Of("KeyComparison"), lines}
	return printers.Document(w, output, document, func() string {
		var b strings.Builder
		table := printers.Table(&b)
		fmt.Fprintln(table, "KEY-ID\tALGORITHM\tSTATE\tRESULT\tDETAIL")
		for _, line := range lines {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n",
				printers.OrNone(line.ID), printers.OrNone(line.Algorithm), printers.OrNone(string(line.State)), line.Result,
				printers.Printable(line.Detail))
		}
		table.Flush()
		return b.String()
	})
}

// publishOptions are the flags of "keys publish".
type publishOptions struct {
	commandOptions

	publishing options.Publishing
	replace    bool
	check      bool
	caFile     string
}

func newPublishCommand() *cobra.Command {
	o := &publishOptions{}
	cmd := &cobra.Command{
		Use:   "publish",
		Short: "Publish the keys once for relying parties",
		Long: `Write the discovery document and the JWKS of the issuer to each --publish-keys, as the manager
does all the time, and print the JWKS. Documents of another issuer stay, unless --replace is given:
then its relying parties refuse its tokens. --check compares what they read with the ring.`,
		Args: cli.NoArguments,
	}
	o.addRing(cmd.Flags())
	cmd.Flags().StringVar(&o.issuer, "service-account-issuer", o.issuer,
		"With --publish-keys: https `URL` of the issuer, as kube-apiserver has it first.")
	options.AddSome(cmd.Flags(), map[string]string{
		options.PublishKeysFlag: "`Directory` to write to, as for the manager: file:///DIRECTORY. May be given several times.",
	}, &o.publishing)
	cmd.Flags().BoolVar(&o.replace, "replace", o.replace,
		"Replace the documents of another issuer, too. Its tokens are refused from then on.")
	cmd.Flags().BoolVar(&o.check, "check", o.check,
		"Get the JWKS below --service-account-issuer then, and compare it with the ring. Exit code: 2 if a key is not the same.")
	AddCAFile(cmd, &o.caFile)
	cli.AddDryRun(cmd, &o.connection)
	cmd.RunE = cli.WhenValid(o.validate, func(cmd *cobra.Command, _ []string) error {
		return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
	})
	return cmd
}

func (o *publishOptions) validate() []error {
	p := append(o.validateRing(), o.publishing.Validate()...)
	destinations := o.publishing.Destinations
	if o.replace && len(destinations) == 0 {
		p.Add("replace", o.replace, "must come with --"+options.PublishKeysFlag)
	}
	if o.check && o.issuer == "" {
		p.Add("check", o.check, "must come with --service-account-issuer")
	}
	if len(destinations) > 0 {
		p = append(p, o.publishing.ValidateFor(&options.Keys{KeyRing: o.ring, Issuers: []string{o.issuer}})...)
	}
	return p
}

func (o *publishOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	cli.WritesTo(stderr, &o.connection)
	state, err := ring.At(o.ring).Read()
	if err != nil {
		return err
	}
	documents := relying.Documents{Issuer: o.issuer, Replace: o.replace, DryRun: o.connection.DryRun}
	for _, path := range o.publishing.Directories() {
		to := relying.Directory(path)
		wrote, err := documents.Publish(to, state.Ring())
		if err != nil {
			return fmt.Errorf("publish the keys at %s: %w", to, err)
		}
		fmt.Fprintf(stderr, "%s: documents written: %q.\n", to, wrote)
	}
	jwks, err := signing.MarshalJWKS(state.Ring().KeySet().All())
	if err != nil {
		return err
	}
	if _, err = fmt.Fprintf(stdout, "%s\n", jwks); err != nil || !o.check {
		return err
	}
	ctx, cancel := cli.AnswerWithin(ctx, checkTimeout)
	defer cancel()
	there, err := ReadPublished(ctx, nil, nil, strings.TrimSuffix(o.issuer, "/")+signing.JWKSPath, o.caFile)
	if err != nil {
		return err
	}
	keys, err := Read(&options.Keys{KeyRing: o.ring})
	if err != nil {
		return err
	}
	return compared(relying.Compare(keys, there), "table", stderr, stderr)
}

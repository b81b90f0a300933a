// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyring/relying"
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

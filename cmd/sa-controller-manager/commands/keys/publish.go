// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/publish"
	"sa-controller-manager/signing/ring"
)

// publishOptions are the flags of "keys publish".
type publishOptions struct {
	commandOptions

	publishing options.Publishing
	replace    bool
}

func newPublishCommand() *cobra.Command {
	o := &publishOptions{}
	cmd := &cobra.Command{
		Use:   "publish",
		Short: "Publish the keys once for relying parties",
		Long: `Write the discovery document and the JWKS of the issuer to each --publish-keys, as the manager
does all the time, and print the JWKS. Documents of another issuer stay, unless --replace is given:
then its relying parties refuse its tokens. "keys jwks --check" compares what they read with the ring.`,
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
	cli.AddDryRun(cmd, &o.connection)
	cmd.RunE = cli.WhenValid(o.validate, func(cmd *cobra.Command, _ []string) error {
		return o.run(cmd.OutOrStdout(), cmd.ErrOrStderr())
	})
	return cmd
}

func (o *publishOptions) validate() []error {
	p := append(o.validateRing(), o.publishing.Validate()...)
	destinations := o.publishing.Destinations
	if o.replace && len(destinations) == 0 {
		p.Add("replace", o.replace, "must come with --"+options.PublishKeysFlag)
	}
	if len(destinations) > 0 {
		p = append(p, o.publishing.ValidateFor(&options.Keys{KeyRing: o.ring, Issuers: []string{o.issuer}})...)
	}
	return p
}

func (o *publishOptions) run(stdout, stderr io.Writer) error {
	cli.WritesTo(stderr, &o.connection)
	state, err := ring.At(o.ring).Read()
	if err != nil {
		return err
	}
	documents := publish.Publisher{Issuer: o.issuer, Replace: o.replace, DryRun: o.connection.DryRun}
	for _, path := range o.publishing.Directories() {
		to := publish.Directory(path)
		wrote, err := documents.Pass(to, state.Ring())
		if err != nil {
			return fmt.Errorf("publish the keys at %s: %w", to, err)
		}
		fmt.Fprintf(stderr, "%s: documents written: %q.\n", to, wrote)
	}
	jwks, err := signing.MarshalJWKS(state.Ring().KeySet().All())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s\n", jwks)
	return err
}

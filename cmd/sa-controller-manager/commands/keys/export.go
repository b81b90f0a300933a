// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyring/operator"
	"sa-controller-manager/controllers/keyring/relying"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/signing"
)

// newExportCommand writes the files that kube-apiserver reads.
func newExportCommand() *cobra.Command {
	var directory string
	var newKey bool
	cmd := &cobra.Command{
		Use:   "export --kubeadm",
		Short: "Write the key files that kube-apiserver reads",
		Long: `Write kubeadm's two files: sa.pub with all public keys, that of sa.key first, and then sa.key
with the key that signs. If another process has that, sa.key stays as it is; if that process is
lost, --new-key writes a new RSA key, with which the components sign after "kubeadm handback":
copy both files to the other nodes. Modes and owners stay; a new sa.key gets mode 0600.`,
	}
	o := &commandOptions{}
	o.addRing(cmd.Flags())
	cmd.Flags().StringVar(&directory, "kubeadm", directory,
		"Write sa.pub and sa.key in this `directory`, that of kubeadm if none is given.")
	cmd.Flags().Lookup("kubeadm").NoOptDefVal = "/etc/kubernetes/pki"
	cmd.Flags().BoolVar(&newKey, "new-key", newKey,
		"Write a new private key, which is in no ring. The previous sa.key becomes sa.key.previous.")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p := o.validateRing()
		if directory == "" {
			p.Add("kubeadm", directory, "must be given, or name a directory")
		}
		if err := cli.InvalidFlags(cmd.CommandPath(), p); err != nil {
			return err
		}
		notes, err := operator.Export(ring.At(o.ring), directory, newKey)
		for _, note := range notes {
			cmd.PrintErrln(note)
		}
		return err
	}
	return cmd
}

// newImportCommand imports the ring of another node.
func newImportCommand(client cli.ClientFunc) *cobra.Command {
	var imports operator.ImportOptions
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Replace the ring by a newer copy of it, such as that of another node",
		Long: `Replace the ring by a newer copy of it. If there is none, it is made. A copy is refused that has
not come from the ring that is here; with --kubeconfig also one that is older than the ring
that this host has used, or that has come from no ring that is published.

The FILE has private keys. Remove it when it is imported.`,
		Args: cobra.ArbitraryArgs,
	}
	o := newCommandOptions(cmd, client)
	cmd.Flags().BoolVar(&imports.Join, "join-fork", imports.Join, "The way out of a ring that was changed in two places: keep this one, "+
		"and take the keys that only FILE has as retired ones. Then bring the result to the other place.")
	cmd.Flags().BoolVar(&imports.AcceptOlder, "accept-older", imports.AcceptOlder,
		"Take FILE although this host has used a newer ring, which no host has any more. Tokens of the keys that FILE lacks are "+
			"refused then.")
	o.argument = "one FILE to import"
	return o.steps(cmd, nil, func(ctx context.Context, operator *operator.Operator) error {
		notes, err := operator.Import(ctx, ring.At(o.args[0]), imports)
		return noted(cmd, notes, err)
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
	keys, err := Read(&options.Keys{KeyRing: o.ring})
	if err != nil {
		return err
	}
	there := jwksOptions{check: strings.TrimSuffix(o.issuer, "/") + signing.JWKSPath, caFile: o.caFile, output: cli.Output{Format: "table"}}
	return there.compare(ctx, nil, keys, stderr, stderr)
}

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
	"sa-controller-manager/controllers/keyring/consistency"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/publish"
	"sa-controller-manager/signing/ring"
)

const (
	publishExamples = `  # Once, for a web server.
  sa-controller-manager keys publish --service-account-key-ring=ring.json \
    --service-account-issuer=https://issuer.example.com --publish-keys=file:///srv/issuer

  # For a workload identity pool of GCP, which takes an uploaded JWKS. From now on no key
  # signs, and none is pruned, until you have confirmed that the pool has the new one.
  sa-controller-manager keys publish --service-account-key-ring=ring.json --kubeconfig=admin.conf --published-manually=pool >keys.json
  gcloud iam workload-identity-pools providers update-oidc PROVIDER --workload-identity-pool=POOL \
    --location=global --jwk-json-path=keys.json
  sa-controller-manager keys publish confirm pool --key-id=KEY-ID --service-account-key-ring=ring.json --kubeconfig=admin.conf`

	manualFlag = "published-manually"
)

// publishOptions are the flags of "keys publish".
type publishOptions struct {
	commandOptions

	publishing options.Publishing
	replace    bool
	manual     string
}

func newPublishCommand(client cli.ClientFunc) *cobra.Command {
	o := &publishOptions{commandOptions: commandOptions{client: client}}
	cmd := &cobra.Command{
		Use:   "publish",
		Short: "Publish the keys once for relying parties, or register a place where you publish them yourself",
		Long: `Write the discovery document and the JWKS of the issuer to each --publish-keys, as the manager
does all the time with the same flag, and print the JWKS, such as for an upload.

Documents of another issuer stay, unless --replace is given: then its relying parties
refuse its tokens.

--published-manually=NAME records beside the published rings that you publish the keys at a
place of that name yourself. From then on "rotate" and "prune" wait for "publish confirm".`,
		Example: publishExamples,
		Args:    cli.NoArguments,
	}
	o.addRing(cmd.Flags())
	cli.AddConnectionFlags(cmd, &o.connection)
	cmd.Flags().StringVar(&o.issuer, "service-account-issuer", o.issuer,
		"With --publish-keys: https `URL` of the issuer, as kube-apiserver has it first.")
	options.AddSome(cmd.Flags(), map[string]string{
		options.PublishKeysFlag: "`Directory` to write to, as for the manager: file:///DIRECTORY. May be given several times.",
	}, &o.publishing)
	cmd.Flags().BoolVar(&o.replace, "replace", o.replace,
		"Replace the documents of another issuer, too. Its tokens are refused from then on.")
	cmd.Flags().StringVar(&o.manual, manualFlag, o.manual,
		"Record that you publish the keys yourself at a place of this `name`.")
	cli.AddDryRun(cmd, &o.connection)
	cmd.RunE = cli.WhenValid(o.validate, func(cmd *cobra.Command, _ []string) error {
		return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
	})
	cmd.AddCommand(newConfirmCommand(client), newForgetCommand(client))
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

func (o *publishOptions) run(ctx context.Context, stdout, stderr io.Writer) error {
	if o.manual == "" {
		cli.WritesTo(stderr, &o.connection)
	} else {
		if err := o.changePlaces(ctx, stderr, func(p *consistency.Published) error { return p.AddManual(o.manual) }); err != nil {
			return err
		}
	}
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

func newConfirmCommand(client cli.ClientFunc) *cobra.Command {
	var id string
	cmd := newPlaceCommand(client, &cobra.Command{
		Use:   "confirm NAME",
		Short: "Confirm that a key is published at a place of --published-manually",
		Long: `Record that a key of the ring is published at a place of --published-manually, and when. The
next key needs it before it may sign, and the active key before another one may be pruned.`,
		Example: "  sa-controller-manager keys publish confirm pool --key-id=KEY-ID --service-account-key-ring=ring.json --kubeconfig=admin.conf",
	}, func(p *consistency.Published, state ring.State, name string) error {
		if _, ok := state.Key(id); !ok {
			return fmt.Errorf("the ring has no key %q: give --key-id with one that keys list shows", id)
		}
		return p.Confirm(name, id, time.Now())
	})
	cmd.Flags().StringVar(&id, "key-id", id, "`ID` of the key that you have published; keys list has them.")
	return cmd
}

func newForgetCommand(client cli.ClientFunc) *cobra.Command {
	return newPlaceCommand(client, &cobra.Command{
		Use:   "forget NAME",
		Short: "Forget a place where the keys are published",
		Long: `Forget a place of --published-manually, so that no step waits for it, or what was observed
at a place that the manager reads, such as the lifetime of caches there.`,
		Example: "  sa-controller-manager keys publish forget pool --service-account-key-ring=ring.json --kubeconfig=admin.conf",
	}, func(p *consistency.Published, _ ring.State, name string) error { return p.Forget(name) })
}

// newPlaceCommand is one that changes a place where the keys are published.
func newPlaceCommand(client cli.ClientFunc, cmd *cobra.Command,
	step func(p *consistency.Published, state ring.State, name string) error) *cobra.Command {
	o := &commandOptions{client: client, argument: "one NAME, as keys list shows it"}
	o.addRing(cmd.Flags())
	cli.AddConnectionFlags(cmd, &o.connection)
	cli.AddDryRun(cmd, &o.connection)
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.args = args
		if err := cli.InvalidFlags(cmd.CommandPath(), o.validateRing()); err != nil {
			return err
		}
		state, err := ring.At(o.ring).Read()
		if err != nil {
			return err
		}
		return o.changePlaces(cmd.Context(), cmd.ErrOrStderr(), func(p *consistency.Published) error { return step(p, state, args[0]) })
	}
	return cmd
}

// changePlaces returns nil too if the change was made before.
func (o *commandOptions) changePlaces(ctx context.Context, stderr io.Writer, change func(*consistency.Published) error) error {
	client, err := o.client(&o.connection)
	if err != nil {
		return err
	}
	cli.WritesTo(stderr, &o.connection)
	if err := consistency.Edit(ctx, client, change); !ring.IsDone(err) {
		return err
	}
	return nil
}

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

const (
	publishExamples = `  # Once, for a web server.
  sa-controller-manager keys publish --service-account-key-ring=ring.json \
    --service-account-issuer=https://issuer.example.com --publish-keys=file:///srv/issuer

  # For a workload identity pool of GCP, which takes an uploaded JWKS. From now on no key
  # signs, and none is pruned, until you have confirmed that the pool has the new one.
  sa-controller-manager keys publish --service-account-key-ring=ring.json --published-manually=pool >keys.json
  gcloud iam workload-identity-pools providers update-oidc PROVIDER --workload-identity-pool=POOL \
    --location=global --jwk-json-path=keys.json
  sa-controller-manager keys publish confirm pool --key-id=KEY-ID --service-account-key-ring=ring.json`

	manualFlag = "published-manually"
)

// publishOptions are the flags of "keys publish".
type publishOptions struct {
	commandOptions

	publishing options.Publishing
	takeOver   bool
	manual     string
}

func newPublishCommand() *cobra.Command {
	o := &publishOptions{}
	cmd := &cobra.Command{
		Use:   "publish",
		Short: "Publish the keys once for relying parties, or prepare that for your hands",
		Long: `Write the discovery document and the JWKS of the issuer to each --publish-keys, as the manager
does all the time with the same flag, and print the JWKS, such as for an upload.

Documents of another issuer stay, unless --take-over is given: then its relying parties
refuse its tokens.

--published-manually=NAME records in the ring that you publish the keys at a place of that
name yourself. From then on "rotate activate" and "prune" wait for "publish confirm".`,
		Example: publishExamples,
		Args:    cli.NoArguments,
	}
	o.addRing(cmd.Flags())
	cmd.Flags().StringVar(&o.issuer, "service-account-issuer", o.issuer,
		"With --publish-keys: https `URL` of the issuer, as kube-apiserver has it first.")
	options.AddSome(cmd.Flags(), map[string]string{
		options.PublishKeysFlag: "`Directory` to write to, as for the manager: file:///DIRECTORY. May be given several times.",
	}, &o.publishing)
	cmd.Flags().BoolVar(&o.takeOver, "take-over", o.takeOver,
		"Replace the documents of another issuer, too. Its tokens are refused from then on.")
	cmd.Flags().StringVar(&o.manual, manualFlag, o.manual, "Record in the ring that you publish the keys yourself at a place of this `name`.")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := cli.InvalidFlags(cmd.CommandPath(), o.validate()); err != nil {
			return err
		}
		return o.run(cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	cmd.AddCommand(newConfirmCommand(), newForgetCommand())
	return cmd
}

func (o *publishOptions) validate() []error {
	p := append(o.validateRing(), o.publishing.Validate()...)
	destinations := o.publishing.Destinations
	if o.takeOver && len(destinations) == 0 {
		p.Add("take-over", o.takeOver, "must come with --"+options.PublishKeysFlag)
	}
	if len(destinations) > 0 {
		p = append(p, o.publishing.ValidateFor(&options.Keys{KeyRing: o.ring, Issuers: []string{o.issuer}})...)
	}
	return p
}

func (o *publishOptions) run(stdout, stderr io.Writer) error {
	if o.manual != "" {
		if err := changeManual(o.ring, func(state ring.State) (ring.State, error) { return ring.AddManual(state, o.manual) }); err != nil {
			return err
		}
	}
	state, err := ring.At(o.ring).Read()
	if err != nil {
		return err
	}
	documents := publish.Publisher{Issuer: o.issuer, TakeOver: o.takeOver}
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

func newConfirmCommand() *cobra.Command {
	var id string
	cmd := newManualCommand(&cobra.Command{
		Use:   "confirm NAME",
		Short: "Say that you have published a key at a place of --published-manually",
		Long: `Record that a key of the ring is published at a place of --published-manually. The next key
needs it before it may sign, and the active key before another one may be pruned.`,
		Example: "  sa-controller-manager keys publish confirm pool --key-id=KEY-ID --service-account-key-ring=ring.json",
	}, func(state ring.State, name string) (ring.State, error) {
		return ring.ConfirmManual(state, name, id)
	})
	cmd.Flags().StringVar(&id, "key-id", id, "`ID` of the key that you have published; keys list has them.")
	return cmd
}

func newForgetCommand() *cobra.Command {
	return newManualCommand(&cobra.Command{
		Use:     "forget NAME",
		Short:   "Publish at a place of --published-manually no longer",
		Long:    `Remove a place of --published-manually from the ring. No step waits for it any more.`,
		Example: "  sa-controller-manager keys publish forget pool --service-account-key-ring=ring.json",
	}, ring.ForgetManual)
}

// newManualCommand is one that changes a place that is published by hand.
func newManualCommand(cmd *cobra.Command, step func(state ring.State, name string) (ring.State, error)) *cobra.Command {
	o := &commandOptions{argument: "one NAME, as --" + manualFlag + " has it"}
	o.addRing(cmd.Flags())
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.args = args
		if err := cli.InvalidFlags(cmd.CommandPath(), o.validateRing()); err != nil {
			return err
		}
		return changeManual(o.ring, func(state ring.State) (ring.State, error) { return step(state, args[0]) })
	}
	return cmd
}

// changeManual returns nil too if the change was made before.
func changeManual(path string, step func(ring.State) (ring.State, error)) error {
	file := ring.At(path)
	if err := file.Writable(); err != nil {
		return err
	}
	state, err := file.Read()
	if err != nil {
		return err
	}
	if err := file.Update(state.Generation, step); !ring.IsDone(err) {
		return err
	}
	return nil
}

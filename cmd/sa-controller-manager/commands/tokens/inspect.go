// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/keys"
	"sa-controller-manager/signing"
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
		"`Issuer` of bound tokens, as kube-apiserver has it. May be given several times. Without it, and without --cluster, it is "+
			"not compared.")
	cmd.Flags().StringVar(&o.jwks, "jwks", o.jwks, "JWKS with keys that verify: an https URL, a file, or \"cluster\" for "+
		"kube-apiserver's, at this `place`.")
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
	if place, _, _ := strings.Cut(o.jwks, "?"); strings.Contains(place, "://") && !strings.HasPrefix(place, "https://") {
		p.Add("jwks", place, "must be an https URL, a file or \""+keys.AtCluster+"\"")
	}
	p.Positive("timeout", o.timeout)
	p.Asks(o.cluster || o.jwks == keys.AtCluster, o.connection.Context)
	return append(p, o.keys.Validate()...)
}

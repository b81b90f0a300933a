// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyring/operator"
	"sa-controller-manager/signing/published"
	"sa-controller-manager/signing/remote"
	"sa-controller-manager/signing/ring"
)

const description = `Make, show and rotate a key ring: the signing key, the one that comes next and the
retired ones that verify only, in one file with mode 0600. The manager reads it with --service-account-key-ring and
takes a change within 15 s, without a restart.

A rotation:

  keys rotate start      a new key is published; it verifies and does not sign
  keys rotate activate   the new key signs; kube-apiserver must accept it first
  keys rotate complete   the rotation has ended
  keys prune             a retired key that nothing needs is removed
  keys revoke            a key that has leaked is removed at once
  keys rollback          back to the previous key, at any time before it is pruned

What others verify tokens with, and whether that is right: keys jwks.

Every command may be interrupted and run again. One that refuses says what to do.
Where there are several control-plane nodes, rotate on one of them and bring the file to
the others with "keys import". A container must mount the directory of the file, which is
replaced whenever it changes.

Exit code: 0 if it is done, 1 if it could not be done, and 2 if "list" or "status" have
found something that is wrong.`

// commandOptions are the flags that the commands share.
type commandOptions struct {
	client     cli.ClientFunc
	connection options.Connection
	ring       string
	sockets    string
	issuer     string
	apiServers []string
	account    string
	output     cli.Output
	policy     ring.Policy
	published  options.Published
	gated      bool   // the command has the flags of published
	argument   string // what the only argument is, "" if there is none
	args       []string
	pruned     []operator.Pruned
}

// NewCommand needs no running manager.
func NewCommand(client cli.ClientFunc) *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "keys",
		Short: "Make, show and rotate the signing keys of a key ring",
		Long:  description,
		Args:  cli.NoArguments,
	}, newInitCommand(client), newListCommand(client), newRotateCommand(client), newAutoCommand(client), newRollbackCommand(client),
		newPruneCommand(client), newRevokeCommand(client),
		newExportCommand(), newImportCommand(client), newPublishCommand(), NewJWKSCommand(client))
}

// newCommandOptions adds the flags to cmd. formats are output formats besides the common ones.
func newCommandOptions(cmd *cobra.Command, client cli.ClientFunc, formats ...string) *commandOptions {
	o := &commandOptions{client: client, account: metav1.NamespaceSystem + "/default", policy: ring.Policy(options.NewRotation().Policy)}
	if cmd.Args == nil {
		cmd.Args = cli.NoArguments
	}
	cli.AddConnectionFlags(cmd, &o.connection)
	o.addRing(cmd.Flags())
	cmd.Flags().StringVar(&o.sockets, remote.SocketsFlag, o.sockets,
		"YAML `file` with the sockets of processes that have keys of the ring (kep740:NAME), the manager's own. Needed to have such a key sign.")
	cmd.Flags().StringVar(&o.issuer, "service-account-issuer", o.issuer,
		"Issuer of the cluster's bound tokens. Without it kube-apiserver's OIDC discovery document is asked.")
	cmd.Flags().StringArrayVar(&o.apiServers, "apiserver", o.apiServers,
		"`URL` of one more kube-apiserver that must accept a key, as in --master. Without it those behind the Service kubernetes are asked, "+
			"each at its own address.")
	cmd.Flags().StringVar(&o.account, "account", o.account,
		"ServiceAccount, as `namespace/name`, for which tokens are signed to see whether kube-apiserver accepts them.")
	cmd.Flags().DurationVar(&o.policy.TokenLifetime, "longest-token-lifetime", o.policy.TokenLifetime,
		"Longest life of a bound token: kube-apiserver's --service-account-max-token-expiration, or that of its external signer. "+
			"Without such a limit, the longest life that users have asked for, and at least the year (8760h) that Pods get.")
	o.output.AddFlag(cmd, append([]string{"table", "json", "yaml"}, formats...)...)
	return o
}

func (o *commandOptions) addRing(fs *pflag.FlagSet) {
	fs.StringVar(&o.ring, options.KeyRingFlag, o.ring, "Key ring `file`, the manager's own.")
}

func (o *commandOptions) validateRing() (p options.Problems) {
	if o.ring == "" {
		p.Add(options.KeyRingFlag, o.ring, "must be the path of a key ring")
	}
	if o.argument != "" && len(o.args) != 1 {
		p = append(p, fmt.Errorf("want %s, got %q", o.argument, o.args))
	}
	return p
}

func (o *commandOptions) addCacheAge(fs *pflag.FlagSet) {
	fs.DurationVar(&o.policy.CacheAge, "cache-age", o.policy.CacheAge,
		"How long a new key is published before it may sign: the greatest age of a cached copy of the key set.")
}

func (o *commandOptions) addPublished(fs *pflag.FlagSet) {
	o.gated = true
	options.AddSome(fs, map[string]string{options.PublishedIssuerFlag: "", options.PublishedHostFlag: "", options.PublishedCAFileFlag: ""},
		&o.published)
}

func (o *commandOptions) addHoldDown(fs *pflag.FlagSet) {
	fs.DurationVar(&o.policy.HoldDown, "hold-down", o.policy.HoldDown,
		"How long a key is kept at least after it stopped signing, so that it can be rolled back to.")
}

func (o *commandOptions) validate() options.Problems {
	p := append(options.Problems(o.output.Validate()), o.validateRing()...)
	p = append(p, o.published.Validate()...)
	p.Account(o.account)
	if len(o.apiServers) > 0 && o.connection.Kubeconfig == "" {
		p.Add("apiserver", o.apiServers[0], "must come with --kubeconfig, which says as whom to ask")
	}
	p.NotNegative("cache-age", o.policy.CacheAge)
	p.NotNegative("hold-down", o.policy.HoldDown)
	p.NotNegative("longest-token-lifetime", o.policy.TokenLifetime)
	return p
}

// operator returns an Operator without a Cluster if the flags do not name one.
func (o *commandOptions) operator(stderr io.Writer) (*operator.Operator, error) {
	var sockets remote.Sockets
	if o.sockets != "" {
		var err error
		if sockets, err = cli.ReadFile(remote.SocketsFlag, o.sockets, remote.ParseSockets); err != nil {
			return nil, err
		}
	}
	signers := remote.NewClient(func() remote.Sockets { return sockets }, nil)
	op := &operator.Operator{File: ring.At(o.ring).Signing(signers.Sign), Signers: signers, Issuer: o.issuer, Policy: o.policy,
		Clock: clock.RealClock{}, Progress: cli.NewProgress(stderr).Waiting()}
	if o.gated {
		gate, err := published.NewGate(published.Config{
			Issuers: o.published.Issuers, Optional: o.published.Optional(o.issuer), JWKSHosts: o.published.JWKSHosts, CAFile: o.published.CAFile,
		})
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", options.PublishedCAFileFlag, err)
		}
		if gate != nil {
			op.Gate = gate
		}
	}
	if o.connection.Kubeconfig == "" && o.connection.Master == "" {
		return op, nil
	}
	client, err := o.client(&o.connection)
	if err != nil {
		return nil, err
	}
	namespace, account, _ := strings.Cut(o.account, "/")
	op.Cluster = &operator.Cluster{Client: client, Issuer: o.issuer, Namespace: namespace, Account: account}
	dial := func(url string) (kubernetes.Interface, error) {
		connection := o.connection
		connection.Master = url
		return o.client(&connection)
	}
	if o.connection.Kubeconfig != "" {
		op.Cluster.Dial = dial
	}
	for _, url := range o.apiServers {
		other, err := dial(url)
		if err != nil {
			return nil, fmt.Errorf("--apiserver %q: %w", url, err)
		}
		op.Cluster.Others = append(op.Cluster.Others, operator.APIServer{URL: url, Client: other})
	}
	return op, nil
}

// shows has cmd print the ring, or its public keys as PEM. Findings decide the exit code.
func (o *commandOptions) shows(cmd *cobra.Command) *cobra.Command {
	return o.runs(cmd, nil, func(_ context.Context, operator *operator.Operator) error {
		if o.output.Format == "pem" {
			return printPublicKeys(cmd.OutOrStdout(), operator.File)
		}
		report, err := o.print(cmd, operator)
		if err == nil && len(report.Findings) > 0 {
			return cli.ErrFindings
		}
		return err
	})
}

// steps has cmd take a step and print the ring. Findings do not change the exit code here: after a
// start, for example, kube-apiserver does not accept the next key yet.
func (o *commandOptions) steps(cmd *cobra.Command, check func(*options.Problems),
	step func(context.Context, *operator.Operator) error) *cobra.Command {
	return o.runs(cmd, check, func(ctx context.Context, operator *operator.Operator) error {
		err := step(ctx, operator)
		if ring.IsDone(err) {
			fmt.Fprintf(cmd.ErrOrStderr(), "Nothing was changed: %v.\n", err)
			err = nil
		}
		if refusal, ok := errors.AsType[*ring.Refusal](err); ok && refusal.Breaks != "" {
			err = fmt.Errorf("%w; --force ignores this, and then %s", err, refusal.Breaks)
		}
		if err != nil && len(o.pruned) == 0 {
			return err
		}
		_, unprinted := o.print(cmd, operator) // with an error too: these keys are gone in any case
		if err == nil && unprinted != nil {
			return fmt.Errorf("the command has done its work, but: %w", unprinted)
		}
		return errors.Join(err, unprinted)
	})
}

// runs has cmd run with valid flags. check, unless it is nil, finds problems of further flags.
func (o *commandOptions) runs(cmd *cobra.Command, check func(*options.Problems),
	run func(context.Context, *operator.Operator) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o.args = args
		p := o.validate()
		if check != nil {
			check(&p)
		}
		if err := cli.InvalidFlags(cmd.CommandPath(), p); err != nil {
			return err
		}
		operator, err := o.operator(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer operator.Signers.Close()
		return run(cmd.Context(), operator)
	}
	return cmd
}

func (o *commandOptions) print(cmd *cobra.Command, operator *operator.Operator) (*Report, error) {
	report, err := newReport(cmd.Context(), operator)
	if err != nil {
		return nil, err
	}
	report.Pruned = o.pruned
	return report, report.Print(cmd.OutOrStdout(), o.output.Format)
}

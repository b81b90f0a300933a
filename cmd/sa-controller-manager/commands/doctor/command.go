// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/keys"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/internal/flagfile"
	"sa-controller-manager/internal/printers"
)

const description = `Check the ServiceAccounts of a cluster, their tokens and the webhook, and print each
problem with its remedy. This needs the kubeconfig of an administrator.

Nothing is changed: doctor reads objects, has kube-apiserver answer reviews, creates a Pod
with dryRun, and requests one token of ten minutes, which it does not keep.

The checks:

%s
A check that has nothing to look at is skipped and says why. Where the manager is not
installed, that is its own checks, and what the user may not read.

Exit code: 0 without findings, 2 with findings, and 1 without findings if a check could not
be completed.`

const examples = `  # All checks, from any machine.
  sa-controller-manager doctor --kubeconfig=admin.conf

  # On the control-plane node of kubeadm: compare with the files too.
  sa-controller-manager doctor --kubeconfig=/etc/kubernetes/admin.conf \
    --root-ca-file=/etc/kubernetes/pki/ca.crt \
    --service-account-private-key-file=/etc/kubernetes/pki/sa.key

  # One check, for a program.
  sa-controller-manager doctor --kubeconfig=admin.conf --only=webhook -o json`

// commandOptions are the flags of the command.
type commandOptions struct {
	connection options.Connection
	admission  options.Admission
	keys       options.Keys
	election   options.LeaderElection
	account    string
	user       string
	only, skip []string
	timeout    time.Duration
	grace      time.Duration
	output     cli.Output
}

// NewCommand needs no running manager.
func NewCommand(client cli.ClientFunc) *cobra.Command {
	o := &commandOptions{
		admission: options.NewAdmission(), election: options.NewLeaderElection(),
		account: metav1.NamespaceSystem + "/default", timeout: 30 * time.Second, grace: defaultGrace,
	}
	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "Find problems in a cluster, and print their remedies",
		Long:    fmt.Sprintf(description, checksText()),
		Example: examples,
		RunE: cli.WhenValid(o.validate, func(cmd *cobra.Command, _ []string) error {
			return o.run(cmd.Context(), client, cmd.OutOrStdout(), cmd.ErrOrStderr())
		}),
	}
	o.addFlags(cmd)
	for _, name := range []string{"only", "skip"} {
		cli.AddCompletion(cmd, name, stepNames()...)
	}
	return cmd
}

func (o *commandOptions) addFlags(cmd *cobra.Command) {
	cli.AddConnectionFlags(cmd, &o.connection)
	// They mean the same as for the manager.
	options.AddSome(cmd.Flags(), map[string]string{
		"pod-token":                       options.AsManager,
		"limit-secret-references":         options.AsManager,
		"leader-elect-resource-name":      options.AsManager,
		"leader-elect-resource-namespace": options.AsManager,
		"root-ca-file": "PEM `file` with the root CA bundle that namespaces and token Secrets must have. Without it, " +
			"that of kube-system counts.",
		"service-account-key-file": "PEM `file` with keys, public or private, that kube-apiserver must know. May be given " +
			"several times.",
		"service-account-private-key-file": "PEM `file` with the private key that signs tokens. Only its key ID is used.",
		options.KeyRingFlag:                "Key ring `file`. Only its key IDs are used.",
	}, &o.admission, &o.keys, &o.election)
	cmd.Flags().StringVar(&o.account, "account", o.account, "ServiceAccount, as `namespace/name`, that a token is requested for. "+
		"The Pod with dryRun is created in its namespace.")
	cmd.Flags().StringVar(&o.user, "user", o.user, "User `name` of the manager. Without it, the subject of its ClusterRoleBinding.")
	cmd.Flags().StringSliceVar(&o.only, "only", o.only, "Run only these `checks`.")
	cmd.Flags().StringSliceVar(&o.skip, "skip", o.skip, "Skip these `checks`.")
	cmd.Flags().DurationVar(&o.timeout, "timeout", o.timeout, "Timeout of each check. After two of them no other one is made.")
	cmd.Flags().DurationVar(&o.grace, "grace", o.grace,
		"Age below which namespaces and Secrets are not checked: the controllers may not have reached them yet.")
	o.output.AddFlag(cmd, "table", "json", "yaml")
}

func (o *commandOptions) validate() []error {
	p := options.Problems(o.output.Validate())
	p.EachOf("only", o.only, stepNames()...)
	p.EachOf("skip", o.skip, stepNames()...)
	p.Account(o.account)
	p.Positive("timeout", o.timeout)
	p.Positive("grace", o.grace)
	if len(p) == 0 && len(selected(o.only, o.skip)) == 0 {
		p.Add("skip", strings.Join(o.skip, ","), "leaves no check of --only")
	}
	return append(append(append(p, o.keys.Validate()...), o.election.Validate()...), o.admission.Validate()...)
}

func (o *commandOptions) run(ctx context.Context, client cli.ClientFunc, stdout, stderr io.Writer) error {
	cluster, err := o.cluster()
	if err != nil {
		return err
	}
	if cluster.Client, err = client(&o.connection); err != nil {
		return err
	}
	cluster.Flags = cli.ClusterFlags(o.connection)
	// One error is clearer than one for each check.
	if _, err = apiservers.Version(ctx, cluster.Client); err != nil {
		return fmt.Errorf("ask kube-apiserver for its version: %w", err)
	}
	cluster.Get = apiservers.Getter(cluster.Client)
	cluster.Dial = func(url string) (kubernetes.Interface, error) {
		connection := o.connection
		connection.Master = url
		return client(&connection)
	}
	progress := cli.NewProgress(stderr)
	report := newReport(run(ctx, cluster, selected(o.only, o.skip), o.timeout, progress.Show))
	progress.End()
	table := func() string { return report.table(cli.TerminalWidth(stdout)) }
	if err := printers.Document(stdout, o.output.Format, report, table); err != nil {
		return err
	}
	return report.outcome(stderr)
}

// cluster returns what the flags and files say about the cluster.
func (o *commandOptions) cluster() (*cluster, error) {
	namespace, account, _ := strings.Cut(o.account, "/")
	cluster := &cluster{
		Grace: o.grace,
		Clock: clock.RealClock{}, Namespace: namespace, Account: account, User: o.user, Plugin: o.admission.Plugin(),
		LeaseNamespace: o.election.ResourceNamespace, LeaseName: o.election.ResourceName,
	}
	var err error
	if o.keys.RootCAFile != "" {
		if cluster.RootCA, err = flagfile.Read("root-ca-file", o.keys.RootCAFile, rootca.ParseBundle); err != nil {
			return nil, err
		}
	}
	if cluster.Keys, err = keys.ReadDue(&o.keys, cluster.Clock.Now()); err != nil {
		return nil, err
	}
	return cluster, nil
}

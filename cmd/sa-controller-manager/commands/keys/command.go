// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/controllers/keyring/operator"
	"sa-controller-manager/controllers/keyring/remote"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/flagfile"
)

const description = `Make, show and rotate a key ring: the signing key, the one that comes next and the
retired ones that verify only, in one file with mode 0600. The manager reads it with --service-account-key-ring and
takes a change within 15 s, without a restart.

One key is always ahead: the next key is published long before it signs.

Every command may be interrupted and run again. Change the ring on one control-plane node and
bring the file to the others with "keys import".

Exit code: 0 if it is done or nothing is to be done, 1 if not, 2 if "list" has findings.`

// commandOptions are the flags that the commands share.
type commandOptions struct {
	client     cli.ClientFunc
	connection options.Connection
	ring       string
	sockets    string
	issuer     string
	apiServers []string
	output     cli.Output
	policy     ring.Policy
	argument   string // what the only argument is, "" if there is none
	args       []string
	asks       bool // kube-apiserver is asked first, without a flag one that is found
	seeks      bool // kube-apiserver is asked if one is found
	next       string
	without    []string
	pruned     []operator.Pruned
}

// NewCommand needs no running manager.
func NewCommand(client cli.ClientFunc) *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "keys",
		Short: "Make, show and rotate the signing keys of a key ring",
		Long:  description,

		SuggestFor: []string{"rotate", "revoke", "rollback", "prune"},
	}, newInitCommand(client), newListCommand(client), newRotateCommand(client), newNextCommand(client), newRollbackCommand(client),
		newPruneCommand(client), newRevokeCommand(client), newForgetCommand(client),
		newExportCommand(), newImportCommand(client), newPublishCommand(), NewJWKSCommand(client))
}

// newCommandOptions adds the flags to cmd.
func newCommandOptions(cmd *cobra.Command, client cli.ClientFunc) *commandOptions {
	o := &commandOptions{client: client, connection: options.Connection{QPS: -1}, // some dozens of requests, for which a user waits
		policy: ring.Policy{CacheAge: 24 * time.Hour, TokenLifetime: 365 * 24 * time.Hour}}
	cli.AddConnectionFlags(cmd, &o.connection)
	o.addRing(cmd.Flags())
	cmd.Flags().StringVar(&o.sockets, remote.SocketsFlag, o.sockets,
		"YAML `file` with the sockets of processes that have keys of the ring (kep740:NAME), the manager's own. Needed to have such "+
			"a key sign.")
	cmd.Flags().StringVar(&o.issuer, "service-account-issuer", o.issuer,
		"Issuer of the cluster's bound tokens. Without it kube-apiserver's OIDC discovery document is asked.")
	cmd.Flags().StringArrayVar(&o.apiServers, "apiserver", o.apiServers,
		"`URL` of a kube-apiserver, as in --master; name each of them once. Without it those behind the Service kubernetes are asked.")
	cmd.Flags().DurationVar(&o.policy.TokenLifetime, "longest-token-lifetime", o.policy.TokenLifetime,
		"Longest life of a bound token: kube-apiserver's --service-account-max-token-expiration, or what was asked for and 8760h for Pods.")
	o.output.AddFlag(cmd, "table", "json", "yaml")
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

func (o *commandOptions) validate() options.Problems {
	p := append(options.Problems(o.output.Validate()), o.validateRing()...)
	p.Positive("longest-token-lifetime", o.policy.TokenLifetime)
	if next := o.successor().Signer; next != "" {
		checkSigner(&p, "next-key", next)
	}
	return p
}

// operator returns an Operator without a Cluster if the flags do not name one.
func (o *commandOptions) operator(stderr io.Writer) (*operator.Operator, error) {
	var sockets remote.Sockets
	if o.sockets != "" {
		var err error
		if sockets, err = flagfile.Read(remote.SocketsFlag, o.sockets, remote.ParseSockets); err != nil {
			return nil, err
		}
	}
	signers := remote.NewClient(func() remote.Sockets { return sockets }, nil)
	host, err := hosts.HostName()
	if err != nil {
		return nil, err
	}
	file := ring.At(o.ring).Signing(signers.Sign)
	if o.connection.DryRun {
		file = file.DryRun()
	}
	op := &operator.Operator{Host: host, File: file, Signers: signers, Issuer: o.issuer, Policy: o.policy,
		Clock: clock.RealClock{}, Progress: cli.NewProgress(stderr).Waiting()}
	given := cli.ClusterFlags(o.connection) != "" || len(o.apiServers) > 0
	if !given && !o.asks && !o.seeks {
		return op, nil
	}
	client, err := o.client(&o.connection)
	if err != nil && !given && !o.asks {
		return op, nil // the command says what it could not ask
	}
	if err != nil {
		return nil, err
	}
	op.Cluster = &operator.Cluster{Client: client, Issuer: o.issuer, Namespace: metav1.NamespaceSystem, Account: "default"}
	dial := func(url string) (kubernetes.Interface, error) {
		connection := o.connection
		connection.Master = url
		return o.client(&connection)
	}
	if o.connection.Kubeconfig != "" || len(o.connection.Found) > 0 {
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

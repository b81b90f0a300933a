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
	"sa-controller-manager/controllers/audit"
	"sa-controller-manager/controllers/legacytokencleaner"
	"sa-controller-manager/signing"
)

const auditDescription = `List the long-lived tokens of a cluster, those in token Secrets, with their account, age,
key, last use, the Pods that use them, and findings:

%s
The state of a key is active, next or retired if the flags name the keys; with
--service-account-key-file alone it is known. Without these flags it is published or
unknown, according to the JWKS of kube-apiserver.

kube-apiserver is asked how far each account reaches, with three SubjectAccessReviews for
most accounts; --reach=false skips them. Nothing is changed.

No token is printed or kept. With -o html there is one page for a browser, with filters,
which needs no server and fetches nothing.

Permissions: list Secrets, ServiceAccounts and Pods in all namespaces, or with -n in that
one, and get it; create subjectaccessreviews; get ` + signing.JWKSPath + ` and the ConfigMap
kube-system/` + legacytokencleaner.TrackingConfigMap + `.

Exit code: 2 if a token has a finding of --fail-on, 1 if the list is not complete or
--fail-on cannot be judged, such as by a label that no token Secret has, else 0.`

const auditExamples = `  # The most dangerous tokens first, with reasons.
  sa-controller-manager tokens audit --kubeconfig=admin.conf --sort-by=findings -o wide

  # All tokens, on a kubeadm node, with the role of each key.
  sa-controller-manager tokens audit --kubeconfig=/etc/kubernetes/admin.conf \
    --service-account-private-key-file=/etc/kubernetes/pki/sa.key

  # A page for people, the most dangerous tokens first.
  sa-controller-manager tokens audit --kubeconfig=admin.conf -o html --output-file=tokens.html

  # In CI: fail if a token that never expires gives access to everything.
  sa-controller-manager tokens audit --kubeconfig=admin.conf --fail-on=cluster-admin,secrets-reader

  # In CI: the findings for a service that shows the results of scanners.
  sa-controller-manager tokens audit --kubeconfig=admin.conf -o sarif >tokens.sarif

  # Tokens of a rotated key, for a program. A prefix of the key ID is enough.
  sa-controller-manager tokens audit --kubeconfig=admin.conf --key-id=32BLaqOW -o json

  # Candidates for deletion in one namespace: half a year without use, and in no Pod.
  sa-controller-manager tokens audit --kubeconfig=admin.conf -n shop --unused-for=180d --finding=unmounted`

// defaultUnused is the period of the legacy token cleaner.
const defaultUnused = 365 * 24 * time.Hour

// auditOptions are the flags of the command.
type auditOptions struct {
	connection options.Connection
	keys       options.Keys
	filter     audit.Filter
	all        bool
	failOn     []string
	sortBy     string
	reach      bool
	output     cli.Output
	outputFile string
}

// NewAuditCommand is the command "tokens audit".
func NewAuditCommand(client cli.ClientFunc) *cobra.Command {
	o := &auditOptions{sortBy: "namespace", reach: true}
	cmd := &cobra.Command{
		Use:     "audit",
		Short:   "List the long-lived tokens of a cluster, with findings",
		Long:    fmt.Sprintf(auditDescription, findingsText()),
		Example: auditExamples,
		Args:    cli.NoTokens,
		RunE: cli.WhenValid(o.validate, func(cmd *cobra.Command, _ []string) error {
			if o.output.Format == audit.HTML && !cmd.Flags().Changed("sort-by") {
				o.sortBy = "findings"
			}
			return o.run(cmd.Context(), client, cmd.OutOrStdout(), cmd.ErrOrStderr())
		}),
	}
	o.addFlags(cmd)
	for name, choices := range map[string][]string{
		"sort-by": audit.SortKeys(), "state": audit.States(), "finding": audit.Names(), "fail-on": append(audit.Names(), audit.Any),
	} {
		cli.AddCompletion(cmd, name, choices...)
	}
	cli.AddNamespaceCompletion(cmd, client, &o.connection)
	return cmd
}

// findingsText is the list in the help.
func findingsText() string {
	var b strings.Builder
	for _, finding := range audit.Findings() {
		fmt.Fprintf(&b, "  %-16s%s\n", finding.Name, finding.About)
	}
	return b.String()
}

func (o *auditOptions) addFlags(cmd *cobra.Command) {
	keys.AddKeyFlags(cmd, &o.keys)
	cli.AddConnectionFlags(cmd, &o.connection)
	flags := cmd.Flags()
	flags.StringVarP(&o.filter.Namespace, "namespace", "n", "", "List only this `namespace`, which must exist.")
	flags.BoolVarP(&o.all, "all-namespaces", "A", false, "List all namespaces, which is the default.")
	flags.StringVarP(&o.filter.Selector, "selector", "l", "", "List only Secrets with these `labels`, as in kubectl.")
	cli.AddDays(flags, &o.filter.OlderThan, "older-than", "Show only Secrets that are at least this old, such as 90d.")
	cli.AddDays(flags, &o.filter.UnusedFor, "unused-for",
		"Show only tokens that were not used for this long. It also defines the finding unused.")
	flags.StringVar(&o.filter.KeyID, "key-id", "", "Show only tokens of keys whose `ID` has this prefix.")
	flags.StringSliceVar(&o.filter.States, "state", nil,
		"Show only tokens whose key is in one of these `states`: "+strings.Join(audit.States(), ", ")+".")
	flags.StringSliceVar(&o.filter.Findings, "finding", nil, "Show only tokens with one of these `findings`.")
	flags.StringSliceVar(&o.failOn, "fail-on", nil, "Exit with 2 if a token that is shown has one of these `findings`, or \"any\".")
	flags.StringVar(&o.sortBy, "sort-by", o.sortBy,
		"Sort order: \""+strings.Join(audit.SortKeys(), "\", \"")+"\". The default of -o html is findings.")
	flags.BoolVar(&o.reach, "reach", o.reach, "Ask kube-apiserver how far each account reaches.")
	o.output.AddFlag(cmd, "table", "wide", "json", "yaml", audit.HTML, audit.SARIF)
	flags.StringVar(&o.outputFile, "output-file", "", "Write the page of -o html to this `file`, which only its owner may read, "+
		"and not to standard output.")
}

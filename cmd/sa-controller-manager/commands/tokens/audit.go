// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/keys"
	"sa-controller-manager/controllers/audit"
	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/legacytokencleaner"
	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/internal/atomicfile"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
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
		"sort-by": audit.Orders(), "state": audit.States(), "finding": audit.Names(), "fail-on": append(audit.Names(), anyFinding),
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

// anyFinding stands for all of them.
const anyFinding = "any"

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
		"Sort order: \""+strings.Join(audit.Orders(), "\", \"")+"\". The default of -o html is findings.")
	flags.BoolVar(&o.reach, "reach", o.reach, "Ask kube-apiserver how far each account reaches.")
	o.output.AddFlag(cmd, "table", "wide", "json", "yaml", audit.HTML, audit.SARIF)
	flags.StringVar(&o.outputFile, "output-file", "", "Write the page of -o html to this `file`, which only its owner may read, "+
		"and not to standard output.")
}

func (o *auditOptions) validate() []error {
	p := options.Problems(o.output.Validate())
	if o.outputFile != "" && o.output.Format != audit.HTML {
		p.Add("output-file", o.outputFile, "needs -o "+audit.HTML)
	}
	if o.all && o.filter.Namespace != "" {
		p.Add("namespace", o.filter.Namespace, "must be left out with --all-namespaces")
	}
	p.OneOf("sort-by", o.sortBy, audit.Orders()...)
	p.EachOf("state", o.filter.States, audit.States()...)
	p.EachOf("finding", o.filter.Findings, audit.Names()...)
	p.EachOf("fail-on", o.failOn, append(audit.Names(), anyFinding)...)
	if o.failOn != nil && len(o.failOn) == 0 {
		p.Add("fail-on", "", "must name a finding")
	}
	o.evaluates(&p, "finding", o.filter.Findings)
	o.evaluates(&p, "fail-on", o.failOn)
	if _, err := labels.Parse(o.filter.Selector); err != nil {
		p.Add("selector", o.filter.Selector, "must be a label selector, such as app=shop")
	}
	return append(p, o.keys.Validate()...)
}

// evaluates refuses findings that no token can have with these flags.
func (o *auditOptions) evaluates(p *options.Problems, flag string, findings []string) {
	asks := func(finding audit.Finding) bool { return slices.Contains(findings, string(finding)) }
	if !o.reach && (asks(audit.ClusterAdmin) || asks(audit.SecretsReader)) {
		p.Add(flag, strings.Join(findings, ","), "needs --reach")
	}
	if asks(audit.RetiredKey) && o.keys.KeyRing == "" && o.keys.PrivateKeyFile == "" {
		p.Add(flag, strings.Join(findings, ","), "needs --"+options.KeyRingFlag+" or --"+options.PrivateKeyFileFlag)
	}
}

func (o *auditOptions) run(ctx context.Context, client cli.ClientFunc, stdout, stderr io.Writer) error {
	auditor, err := o.auditor(ctx, client, stderr)
	if err != nil {
		return err
	}
	doubt, err := o.checkNamespace(ctx, auditor.Client)
	if err != nil {
		return err
	}
	report, err := auditor.Run(ctx)
	if err != nil {
		return err
	}
	audit.Sort(report.Tokens, o.sortBy)
	report.Summary.Cluster = o.connection.Cluster
	var file bytes.Buffer
	if o.outputFile != "" {
		stdout = &file
	}
	if err := audit.Print(stdout, o.output.Format, report, auditor.Rules.Now); err != nil {
		return err
	}
	if o.outputFile != "" {
		// An existing file would keep its mode.
		if err := errors.Join(atomicfile.Remove(o.outputFile), atomicfile.Write(o.outputFile, file.Bytes(), 0o600)); err != nil {
			return fmt.Errorf("--output-file: %w", err)
		}
	}
	if o.filter.Selector != "" || o.filter.KeyID != "" {
		doubt = "no token Secret has these labels and this key ID"
	}
	switch err := o.outcome(report.Summary, stderr); {
	case err != nil:
		return err
	case auditor.Rules.Untracked && slices.Contains(o.failOn, string(audit.Unused)):
		return fmt.Errorf("--fail-on=%s cannot be judged without tracking", audit.Unused)
	case len(o.failOn) > 0 && report.Summary.Shown == 0 && doubt != "":
		return errors.New("--fail-on cannot be judged: " + doubt)
	}
	return nil
}

// auditor reads the keys and rules for all rows.
func (o *auditOptions) auditor(ctx context.Context, client cli.ClientFunc, stderr io.Writer) (*audit.Auditor, error) {
	ring, err := keys.Read(&o.keys)
	if err != nil {
		return nil, err
	}
	rules := audit.Rules{Now: time.Now(), UnusedFor: cmp.Or(o.filter.UnusedFor, defaultUnused)}
	auditor := &audit.Auditor{Filter: o.filter, Reach: o.reach, Rules: rules, Progress: func(int) {}}
	if auditor.Client, err = client(&o.connection); err != nil {
		return nil, err
	}
	if auditor.Keys, err = o.judgingKeys(ctx, auditor.Client, ring, stderr); err != nil {
		return nil, err
	}
	if cli.TerminalWidth(stderr) > 0 {
		auditor.Progress = func(done int) { fmt.Fprintf(stderr, "\r%d token Secrets ... ", done) }
	}
	return auditor, readTracking(ctx, auditor.Client, &auditor.Rules, stderr)
}

// checkNamespace refuses a namespace that does not exist: its list would be empty. doubt says that it may not exist.
func (o *auditOptions) checkNamespace(ctx context.Context, client kubernetes.Interface) (doubt string, err error) {
	if o.filter.Namespace == "" {
		return "", nil
	}
	_, err = client.CoreV1().Namespaces().Get(ctx, o.filter.Namespace, metav1.GetOptions{})
	if apierrors.IsForbidden(err) {
		return fmt.Sprintf("whether the namespace %s exists may not be asked", o.filter.Namespace), nil
	}
	if err != nil {
		return "", fmt.Errorf("--namespace %q: %w", o.filter.Namespace, err)
	}
	return "", nil
}

// judgingKeys returns the keys of the flags or else of kube-apiserver, which need not publish them.
func (o *auditOptions) judgingKeys(ctx context.Context, client kubernetes.Interface, ring []signing.Key, stderr io.Writer) (audit.Keys, error) {
	if len(ring) > 0 {
		return ring, nil
	}
	published, err := keyprobe.PublishedKeys(ctx, apiservers.Getter(client))
	if err == nil {
		return tokens.UsableKeys(published, signing.JWKSPath), nil
	}
	asked := append(slices.Clone(o.failOn), o.filter.Findings...)
	switch {
	case !answered(err):
		return nil, err
	case slices.Contains(asked, string(audit.UnknownKey)), slices.Contains(asked, anyFinding):
		return nil, fmt.Errorf("%w; %w", err, keys.ErrNoKeys)
	}
	fmt.Fprintf(stderr, "Keys of tokens are not checked: %v; %v.\n", err, keys.ErrNoKeys)
	return nil, nil
}

// answered reports whether kube-apiserver answered with an error.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err))
}

// readTracking reads since when kube-apiserver tracks the use of tokens.
func readTracking(ctx context.Context, client kubernetes.Interface, rules *audit.Rules, stderr io.Writer) error {
	tracking, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, legacytokencleaner.TrackingConfigMap, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		fmt.Fprintln(stderr, "Reading the start of token tracking is forbidden: tokens that were never used count from their creation.")
		return nil
	case apierrors.IsNotFound(err):
		rules.Untracked = true
	case err != nil:
		return fmt.Errorf("read the start of token tracking: %w", err)
	default:
		since, ok := legacytokencleaner.TrackedSince(tracking)
		rules.TrackedSince, rules.Untracked = since, !ok
	}
	if rules.Untracked {
		fmt.Fprintln(stderr, "kube-apiserver does not track the use of tokens: unused tokens cannot be found.")
	}
	return nil
}

// outcome prints a summary in one line and decides the exit code.
func (o *auditOptions) outcome(summary audit.Summary, stderr io.Writer) error {
	var counts []string
	failed := false
	for _, name := range audit.Names() {
		count := summary.Findings[audit.Finding(name)]
		if count == 0 {
			continue
		}
		counts = append(counts, fmt.Sprintf("%s %d", name, count))
		failed = failed || slices.Contains(o.failOn, name) || slices.Contains(o.failOn, anyFinding)
	}
	line := fmt.Sprintf("Token Secrets: %d", summary.Examined)
	if summary.Shown != summary.Examined {
		line += fmt.Sprintf(", %d shown", summary.Shown)
	}
	if len(counts) > 0 {
		line += "; findings: " + strings.Join(counts, ", ")
	}
	if cli.TerminalWidth(stderr) > 0 {
		fmt.Fprint(stderr, "\r")
	}
	fmt.Fprintln(stderr, line+".")
	if failed {
		return cli.ErrFindings
	}
	return nil
}

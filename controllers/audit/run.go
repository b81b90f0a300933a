// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/legacytokencleaner"
	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/internal/paging"
	"sa-controller-manager/internal/printers"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

// parallel is how many requests are under way at a time. API priority and fairness shares them out.
const parallel = 16

// Auditor reads the token Secrets of a cluster. It is for one Run, after Prepare.
type Auditor struct {
	Client kubernetes.Interface
	Keys   Keys
	Rules  Rules
	Filter Filter
	// Reach: have kube-apiserver say how far accounts reach.
	Reach bool
	// Progress is called after each page with the number of Secrets so far.
	Progress func(done int)

	snapshots map[string]*snapshot
	// doubt is why an empty list may mean nothing.
	doubt string
}

// Report is the output of the command.
type Report struct {
	printers.Head
	Tokens  []Row   `json:"tokens"`
	Summary Summary `json:"summary"`
}

// Summary counts what was read.
type Summary struct {
	// Cluster is for the title of a page.
	Cluster string `json:"-"`
	// Examined is how many token Secrets there are, Shown how many rows were made of them.
	Examined int             `json:"examined"`
	Shown    int             `json:"shown"`
	Findings map[Finding]int `json:"findings"`
}

// Run returns the rows in the order of namespaces and names, or the first error of a request.
func (a *Auditor) Run(ctx context.Context) (*Report, error) {
	report := &Report{Head: printers.Of("TokenAudit"), Tokens: []Row{}, Summary: Summary{Findings: map[Finding]int{}}}
	a.snapshots = map[string]*snapshot{}
	list := paging.GoingOn(a.Client.CoreV1().Secrets(a.Filter.Namespace).List)
	options := metav1.ListOptions{FieldSelector: "type=" + string(corev1.SecretTypeServiceAccountToken), LabelSelector: a.Filter.Selector}
	err := paging.Each(ctx, "token Secrets", list, options, func(page *corev1.SecretList) error {
		report.Summary.Examined += len(page.Items)
		rows, err := a.rows(ctx, a.reduce(page.Items))
		report.add(rows)
		a.Progress(report.Summary.Examined)
		return err
	})
	return report, err
}

func (r *Report) add(rows []Row) {
	r.Tokens = append(r.Tokens, rows...)
	r.Summary.Shown += len(rows)
	for i := range rows {
		for _, finding := range rows[i].Findings {
			r.Summary.Findings[finding]++
		}
	}
}

// reduce drops the Secrets themselves, and those that the filter refuses by what is known so far.
func (a *Auditor) reduce(page []corev1.Secret) []token {
	var kept []token
	for i := range page {
		if t := a.Keys.observe(&page[i]); a.Filter.wantsToken(t, a.Rules) {
			kept = append(kept, t)
		}
		page[i] = corev1.Secret{}
	}
	return kept
}

func (a *Auditor) rows(ctx context.Context, secrets []token) ([]Row, error) {
	if err := a.readSnapshots(ctx, secrets); err != nil {
		return nil, err
	}
	if a.Reach {
		if err := a.askReaches(ctx, secrets); err != nil {
			return nil, err
		}
	}
	var rows []Row
	for _, secret := range secrets {
		found := a.snapshots[secret.view.Namespace]
		row := a.Rules.row(&secret, found.accounts[secret.account], found.users[secret.view.Name])
		if a.Filter.wantsRow(&row) {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// readSnapshots reads the namespaces of the Secrets. Of those before only the last can still be of
// use: lists are in their order.
func (a *Auditor) readSnapshots(ctx context.Context, secrets []token) error {
	if len(secrets) == 0 {
		return nil
	}
	before := a.snapshots
	a.snapshots = map[string]*snapshot{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, secret := range secrets {
		namespace := secret.view.Namespace
		if a.snapshots[namespace] != nil {
			continue
		}
		if a.snapshots[namespace] = before[namespace]; a.snapshots[namespace] != nil {
			continue
		}
		missing := &snapshot{accounts: map[string]*account{}, users: map[string]users{}}
		a.snapshots[namespace] = missing
		group.Go(func() error { return missing.read(ctx, a.Client, namespace) })
	}
	return group.Wait()
}

// askReaches asks for each account once. One that does not exist is passed over: its tokens open
// nothing.
func (a *Auditor) askReaches(ctx context.Context, secrets []token) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, secret := range secrets {
		found := a.snapshots[secret.view.Namespace].accounts[secret.account]
		if found == nil || found.asked {
			continue
		}
		found.asked = true
		account := tokens.Account{Namespace: secret.view.Namespace, Name: secret.account, UID: string(found.uid)}
		group.Go(func() (err error) {
			found.reach, err = reachOf(ctx, a.Client, account)
			return err
		})
	}
	return group.Wait()
}

// ReadKeys reads the keys that kube-apiserver publishes. If it answers that it publishes none, or not to this
// client, unread says so and the state of no key is known.
func (a *Auditor) ReadKeys(ctx context.Context) (unread, err error) {
	published, err := keyprobe.PublishedKeys(ctx, apiservers.Getter(a.Client))
	if err == nil {
		a.Keys = tokens.UsableKeys(published, signing.JWKSPath)
		return nil, nil
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err)) {
		return err, nil
	}
	return nil, err
}

// Prepare reads since when kube-apiserver tracks the use of tokens, and refuses a namespace that does not exist, whose
// list would be empty. note is for the user, about what cannot be found.
func (a *Auditor) Prepare(ctx context.Context) (note string, err error) {
	tracking, err := a.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, legacytokencleaner.TrackingConfigMap,
		metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		note = "Reading the start of token tracking is forbidden: tokens that were never used count from their creation."
	case apierrors.IsNotFound(err):
		a.Rules.Untracked = true
	case err != nil:
		return "", fmt.Errorf("read the start of token tracking: %w", err)
	default:
		since, ok := legacytokencleaner.TrackedSince(tracking)
		a.Rules.TrackedSince, a.Rules.Untracked = since, !ok
	}
	if a.Rules.Untracked {
		note = "kube-apiserver does not track the use of tokens: unused tokens cannot be found."
	}
	if a.Filter.Namespace == "" {
		return note, nil
	}
	_, err = a.Client.CoreV1().Namespaces().Get(ctx, a.Filter.Namespace, metav1.GetOptions{})
	if apierrors.IsForbidden(err) {
		a.doubt = fmt.Sprintf("whether the namespace %s exists may not be asked", a.Filter.Namespace)
		return note, nil
	}
	if err != nil {
		return note, fmt.Errorf("namespace %q: %w", a.Filter.Namespace, err)
	}
	return note, nil
}

// Any is a finding that stands for all of them.
const Any = "any"

// Gate reports whether a token of the report has one of the findings, or why that cannot be known.
func (a *Auditor) Gate(summary Summary, findings []string) (failed bool, err error) {
	for name, count := range summary.Findings {
		failed = failed || count > 0 && (slices.Contains(findings, string(name)) || slices.Contains(findings, Any))
	}
	doubt := a.doubt
	if a.Filter.Selector != "" || a.Filter.KeyID != "" {
		doubt = "no token Secret has these labels and this key ID"
	}
	switch {
	case failed:
		return true, nil
	case a.Rules.Untracked && slices.Contains(findings, string(Unused)):
		return false, fmt.Errorf("%s cannot be judged without tracking", Unused)
	case len(findings) > 0 && summary.Shown == 0 && doubt != "":
		return false, errors.New("cannot be judged: " + doubt)
	}
	return false, nil
}

// String is the summary in one line.
func (s Summary) String() string {
	var line strings.Builder
	fmt.Fprintf(&line, "Token Secrets: %d", s.Examined)
	if s.Shown != s.Examined {
		fmt.Fprintf(&line, ", %d shown", s.Shown)
	}
	separator := "; findings: "
	for _, name := range Names() {
		if count := s.Findings[Finding(name)]; count > 0 {
			fmt.Fprintf(&line, "%s%s %d", separator, name, count)
			separator = ", "
		}
	}
	return line.String() + "."
}

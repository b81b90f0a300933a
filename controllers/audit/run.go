// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/internal/paging"
	"sa-controller-manager/internal/printers"
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

// reduce drops the Secrets themselves, and those that the filter does not want whatever else there
// is to know of them.
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

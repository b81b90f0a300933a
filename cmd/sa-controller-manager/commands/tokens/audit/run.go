// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/tokens"
)

// parallel is how many requests are under way at a time. API priority and fairness shares them out.
const parallel = 16

// Auditor looks at the token Secrets of a cluster. It is for one Run.
type Auditor struct {
	Client kubernetes.Interface
	Keys   *Keys
	Rules  Rules
	Filter Filter
	// Reach: have kube-apiserver say how far accounts reach.
	Reach bool
	// Progress, if set, is told after each page how many Secrets have been looked at.
	Progress func(looked int)

	scenes map[string]*scene
}

// Summary counts what was seen. Its JSON form is that of the command's output.
type Summary struct {
	// Looked is how many token Secrets there are, Shown how many rows were made of them.
	Looked   int             `json:"looked"`
	Shown    int             `json:"shown"`
	Findings map[Finding]int `json:"findings"`
}

// Run calls emit with the rows of each page, in the order of namespaces and names. It ends with the
// first error of a request or of emit.
func (a *Auditor) Run(ctx context.Context, emit func([]Row) error) (Summary, error) {
	summary := Summary{Findings: map[Finding]int{}}
	a.scenes = map[string]*scene{}
	pages := &secretPages{client: a.Client, namespace: a.Filter.Namespace, selector: a.Filter.Selector}
	err := pages.each(ctx, func(page []corev1.Secret) error {
		summary.Looked += len(page)
		rows, err := a.rows(ctx, a.reduce(page))
		if err != nil {
			return err
		}
		summary.add(rows)
		if len(rows) > 0 {
			if err := emit(rows); err != nil {
				return err
			}
		}
		if a.Progress != nil {
			a.Progress(summary.Looked)
		}
		return nil
	})
	return summary, err
}

func (s *Summary) add(rows []Row) {
	s.Shown += len(rows)
	for i := range rows {
		for _, finding := range rows[i].Findings {
			s.Findings[finding]++
		}
	}
}

// reduce drops the Secrets themselves, and those that the filter does not want whatever else there
// is to know of them.
func (a *Auditor) reduce(page []corev1.Secret) []token {
	var kept []token
	for i := range page {
		if seen := a.Keys.observe(&page[i]); a.Filter.wantsToken(seen, a.Rules) {
			kept = append(kept, seen)
		}
		page[i] = corev1.Secret{}
	}
	return kept
}

func (a *Auditor) rows(ctx context.Context, secrets []token) ([]Row, error) {
	if err := a.readScenes(ctx, secrets); err != nil {
		return nil, err
	}
	if a.Reach {
		if err := a.askReaches(ctx, secrets); err != nil {
			return nil, err
		}
	}
	var rows []Row
	for _, secret := range secrets {
		scene := a.scenes[secret.view.Namespace]
		reach, _ := scene.reach(secret.account)
		row := a.Rules.row(observed{
			secret: secret, account: scene.accounts[secret.account], pods: scene.users[secret.view.Name], reach: reach,
		})
		if a.Filter.wantsRow(&row) {
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// readScenes reads the namespaces of the Secrets. Of those before only the last can still be of
// use: lists are in their order.
func (a *Auditor) readScenes(ctx context.Context, secrets []token) error {
	needed := map[string]*scene{}
	var missing []string
	for _, secret := range secrets {
		namespace := secret.view.Namespace
		if _, listed := needed[namespace]; listed {
			continue
		}
		if needed[namespace] = a.scenes[namespace]; needed[namespace] == nil {
			missing = append(missing, namespace)
		}
	}
	if len(secrets) > 0 {
		a.scenes = needed
	}
	var mu sync.Mutex
	return each(ctx, missing, func(ctx context.Context, namespace string) error {
		read, err := readScene(ctx, a.Client, namespace)
		mu.Lock()
		defer mu.Unlock()
		needed[namespace] = read
		return err
	})
}

// askReaches asks for each account once. One that does not exist is passed over: its tokens open
// nothing.
func (a *Auditor) askReaches(ctx context.Context, secrets []token) error {
	var accounts []tokens.Account
	listed := map[tokens.Account]bool{}
	for _, secret := range secrets {
		scene := a.scenes[secret.view.Namespace]
		found := scene.accounts[secret.account]
		if _, asked := scene.reach(secret.account); asked || found == nil {
			continue
		}
		account := tokens.Account{Namespace: secret.view.Namespace, Name: secret.account, UID: string(found.uid)}
		if !listed[account] {
			listed[account] = true
			accounts = append(accounts, account)
		}
	}
	return each(ctx, accounts, func(ctx context.Context, account tokens.Account) error {
		found, err := reachOf(ctx, a.Client, account)
		if err == nil {
			a.scenes[account.Namespace].setReach(account.Name, found)
		}
		return err
	})
}

// each does something with every item, several at a time. The first error ends the rest.
func each[T any](ctx context.Context, items []T, do func(context.Context, T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan T)
	var working sync.WaitGroup
	for range min(parallel, len(items)) {
		working.Go(func() {
			for item := range next {
				if err := do(ctx, item); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, item := range items {
		if ctx.Err() != nil {
			break
		}
		next <- item
	}
	close(next)
	working.Wait()
	return context.Cause(ctx)
}

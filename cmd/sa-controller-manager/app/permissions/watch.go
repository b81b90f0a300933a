// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"sa-controller-manager/internal/check"
)

// Missing permissions are checked again after a second, then after twice as long each time, and all of them once
// they are granted, because they may be taken away.
const (
	firstRetry = time.Second
	maxRetry   = time.Minute
	recheck    = 10 * time.Minute
)

// Watcher checks permissions. Its methods may be called concurrently.
type Watcher struct {
	client kubernetes.Interface
	rules  []Rule

	mu      sync.Mutex
	checked bool
	last    Report // of the latest check, which covers only what was not granted before
}

// NewWatcher returns a Watcher for the rules of a process. Run makes the requests.
func NewWatcher(client kubernetes.Interface, rules []Rule) *Watcher {
	return &Watcher{client: client, rules: rules}
}

// Run checks until ctx ends, and logs the missing permissions whenever they have changed.
func (w *Watcher) Run(ctx context.Context) error {
	wanted := Accesses(w.rules)
	said := ""
	for retry := firstRetry; ; {
		report := Check(ctx, w.client, wanted)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the process stops
		}
		w.note(report)
		if says := fmt.Sprint(report.Missing(), report.Err()); says != said {
			report.log(klog.FromContext(ctx), w.rules, said == "")
			said = says
		}
		pause := retry
		retry = min(2*retry, maxRetry)
		if wanted = report.accesses(func(a Answer) bool { return !a.Granted }); len(wanted) == 0 {
			wanted, pause, retry = Accesses(w.rules), recheck, firstRetry
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

func (w *Watcher) note(report Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checked, w.last = true, report
}

// Findings is the check of /readyz: it returns an error before the first check. Permissions that could not be checked
// are only a note, because they may be granted.
func (w *Watcher) Findings() (check.Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.checked {
		return check.Result{}, errors.New("not checked yet")
	}
	result := check.Result{Findings: w.last.Findings(w.rules)}
	if err := w.last.Err(); err != nil {
		result.Note = err.Error()
	}
	return result, nil
}

func (r Report) log(logger klog.Logger, rules []Rule, first bool) {
	lacks := check.Error(r.Findings(rules), "")
	if err := r.Err(); err != nil {
		logger.Info("Failed to check permissions, retrying", "cause", err.Error())
	}
	if lacks == nil {
		if !first && r.Err() == nil {
			logger.Info("All permissions are granted now")
		}
		return
	}
	logger.Error(lacks, "Permissions are missing, retrying until they are granted")
	if grants, err := r.Grants(rules); err == nil && grants != "" {
		logger.Info("Apply this to grant the missing permissions", "yaml", grants)
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// Missing permissions are checked again after a second, then after twice as long each time.
const (
	firstRetry = time.Second
	maxRetry   = time.Minute
)

// Watcher checks permissions until all are granted. Its methods may be called concurrently.
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

// Run checks until all permissions are granted or ctx ends, and logs the missing ones whenever they
// have changed.
func (w *Watcher) Run(ctx context.Context) error {
	wanted := Accesses(w.rules)
	said := ""
	for retry := firstRetry; ; retry = min(2*retry, maxRetry) {
		report := Check(ctx, w.client, wanted)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the process stops
		}
		w.note(report)
		if says := fmt.Sprint(report.Missing(), report.Err()); says != said {
			report.log(klog.FromContext(ctx), w.rules, said == "")
			said = says
		}
		if wanted = report.accesses(func(a Answer) bool { return !a.Granted }); len(wanted) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry):
		}
	}
}

func (w *Watcher) note(report Report) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checked, w.last = true, report
}

// Status is the check of /readyz: it returns an error while a permission is missing and before the
// first check. Permissions that could not be checked are only a detail, because they may be granted.
func (w *Watcher) Status() (detail string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.checked {
		return "", errors.New("not checked yet")
	}
	if err := w.last.Err(); err != nil {
		detail = err.Error()
	}
	if missing := w.last.Missing(); len(missing) > 0 {
		return detail, fmt.Errorf("%s may not: %s", w.last.who(), Join(missing))
	}
	return detail, nil
}

func (r Report) who() string {
	if r.User == "" {
		return "this identity"
	}
	return fmt.Sprintf("user %q", r.User)
}

// Join lists accesses in one line.
func Join(accesses []Access) string {
	texts := make([]string, 0, len(accesses))
	for _, access := range accesses {
		texts = append(texts, access.String())
	}
	return strings.Join(texts, ", ")
}

func (r Report) log(logger klog.Logger, rules []Rule, first bool) {
	missing := r.Missing()
	if err := r.Err(); err != nil {
		logger.Info("Failed to check permissions, retrying", "cause", err.Error())
	}
	if len(missing) == 0 {
		if !first && r.Err() == nil {
			logger.Info("All permissions are granted now")
		}
		return
	}
	logger.Error(errors.New("may not "+Join(missing)), "Permissions are missing, retrying until they are granted",
		"user", r.User, "remedy", r.Remedy())
	if grants, err := r.Grants(rules); err == nil && grants != "" {
		logger.Info("Apply this to grant the missing permissions", "yaml", grants)
	}
}

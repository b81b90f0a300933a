// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sa-controller-manager/internal/check"
)

// step is one check of the command.
type step struct {
	Name string
	// About states in a few words what holds if the check finds nothing.
	About string

	run func(*cluster, context.Context) (check.Result, error)
}

// steps returns all checks in the order in which they run: what the others depend on comes first.
func steps() []step {
	return []step{
		{"token", "kube-apiserver accepts a fresh token, and knows the keys of the tokens in Secrets", (*cluster).checkToken},
		{"keys", "kube-apiserver knows the keys of the given key files", (*cluster).checkKeys},
		{"apiservers", "every kube-apiserver knows the keys that the others and the replicas sign with", (*cluster).checkAPIServers},
		{"key-rings", "each host has the active and the next key of the newest key ring", (*cluster).checkKeyRings},
		{"permissions", "the manager has the permissions that it needs", (*cluster).checkPermissions},
		{"webhook", "the webhook is registered, called and first, and a Pod gets its account and token", (*cluster).checkWebhook},
		{"policy", "while the webhook is away, Pods without an account are refused", (*cluster).checkPolicy},
		{"control-plane", "kube-apiserver and kube-controller-manager do not do the work of the manager", (*cluster).checkControlPlane},
		{"namespaces", "every namespace has its default account and the same root CA", (*cluster).checkNamespaces},
		{"trust-bundle", "the ClusterTrustBundle of kube-apiserver has that root CA too", (*cluster).checkTrustBundle},
		{"secrets", "token Secrets have an account, a token and the root CA", (*cluster).checkSecrets},
		{"references", "accounts list no Secret that does not exist", (*cluster).checkReferences},
	}
}

// stepNames returns the names of all checks.
func stepNames() []string {
	var names []string
	for _, step := range steps() {
		names = append(names, step.Name)
	}
	return names
}

// checksText is the list in the help.
func checksText() string {
	var b strings.Builder
	for _, step := range steps() {
		fmt.Fprintf(&b, "  %-19s%s\n", step.Name, step.About)
	}
	return b.String()
}

// selected returns the checks in only, or all if only is empty, except those in skip.
func selected(only, skip []string) []step {
	return slices.DeleteFunc(steps(), func(s step) bool {
		return len(only) > 0 && !slices.Contains(only, s.Name) || slices.Contains(skip, s.Name)
	})
}

// result is how one check ended. Its JSON form is that of the command's output.
type result struct {
	Name string `json:"name"`
	// Word is "ok", "findings", "unknown" or "skipped". Findings win: they are certain, even if the
	// rest of the check failed.
	Word string `json:"result"`
	Note string `json:"note,omitempty"`
	// Error is why the check could not be completed, or "".
	Error string `json:"error,omitempty"`

	findings []check.Finding
}

func newResult(name string, found check.Result, err error) result {
	result := result{Name: name, Word: "ok", Note: found.Note, findings: found.Findings}
	for i := range result.findings {
		result.findings[i].Check = name
	}
	switch {
	case err != nil:
		result.Word, result.Error, result.Note = "unknown", err.Error(), ""
	case found.Skipped:
		result.Word = "skipped"
	}
	if len(result.findings) > 0 {
		result.Word = "findings"
	}
	return result
}

// mostLate is how many checks may get no answer in time. A kube-apiserver whose etcd hangs still answers some requests.
const mostLate = 2

var errLate = errors.New("no answer")

// run runs the checks, each with the timeout limit, and calls show with a line before each one. If
// ctx ends early, or mostLate checks had no answer, the remaining checks get the result "unknown".
func run(ctx context.Context, c *cluster, steps []step, limit time.Duration, show func(string)) []result {
	results, late := make([]result, 0, len(steps)), 0
	for _, step := range steps {
		show(step.Name + ": " + step.About + " ...")
		found, err := check.Result{}, fmt.Errorf("not made, because %d others have had no answer in time", mostLate)
		if late < mostLate {
			found, err = step.within(ctx, c, limit)
		}
		if errors.Is(err, errLate) {
			late++
		}
		found.Findings = check.WithFlags(found.Findings, c.Flags)
		results = append(results, newResult(step.Name, found, err))
	}
	return results
}

// within runs one check. Where the manager is not installed, what may not be read is skipped: it asks for no
// permissions there.
func (s step) within(ctx context.Context, c *cluster, limit time.Duration) (check.Result, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w within %s", errLate, limit))
	defer cancel()
	found, err := s.run(c, ctx)
	if err != nil && ctx.Err() != nil {
		return found, fmt.Errorf("%w: %v", context.Cause(ctx), err)
	}
	if apierrors.IsForbidden(err) && len(found.Findings) == 0 {
		if installed, unknown := c.installed(ctx); unknown == nil && !installed {
			return check.Skip(err.Error()), nil
		}
	}
	return found, err
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/legacytokencleaner"
	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

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
	line := fmt.Sprintf("Token Secrets: %d", s.Examined)
	if s.Shown != s.Examined {
		line += fmt.Sprintf(", %d shown", s.Shown)
	}
	separator := "; findings: "
	for _, name := range Names() {
		if count := s.Findings[Finding(name)]; count > 0 {
			line += fmt.Sprintf("%s%s %d", separator, name, count)
			separator = ", "
		}
	}
	return line + "."
}

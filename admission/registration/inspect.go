// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
)

// Inspected is one configuration as the API has it, for commands.
type Inspected struct {
	Kind   string
	Exists bool
	// Off reports that the annotation switches it off.
	Off bool
	// Active reports that it holds more than the entry of the probe.
	Active bool
	// CABundles are the caBundles of all entries.
	CABundles [][]byte
}

// Inspect reads both configurations, the mutating one first.
func Inspect(ctx context.Context, client kubernetes.Interface) ([]Inspected, error) {
	found, err := getAll(ctx, client)
	if err != nil {
		return nil, err
	}
	var all []Inspected
	for k, o := range found {
		one := Inspected{Kind: kind(k).String(), Exists: o != nil, Off: o.isOff(), Active: o.binds()}
		for _, e := range o.webhooks() {
			one.CABundles = append(one.CABundles, e.ClientConfig.CABundle)
		}
		all = append(all, one)
	}
	return all, nil
}

// ProbePod returns a TrialPod that every replica answers when it is created with dryRun.
func ProbePod(id string) *corev1.Pod { return probePod(id) }

// Answered reports whether a replica has answered the probe Pod.
func Answered(pod *corev1.Pod, id string) bool {
	return id != "" && pod.Annotations[answerAnnotation] == id
}

// Concerns reports whether err is a refusal because of our webhook: it refused the request, or
// could not be called. The error text has the names of the entries.
func Concerns(err error) bool {
	return err != nil && slices.ContainsFunc([]string{mutateName, validateName, probeName},
		func(name string) bool { return strings.Contains(err.Error(), name) })
}

// ErrOff means that a user has switched the webhook off.
var ErrOff = errors.New("the webhook is switched off by the annotation " + Annotation + "=" + AnnotationOff)

// IsActive returns nil if kube-apiserver calls the webhook, an error that wraps ErrOff if a user
// has switched it off, and otherwise an error that names what is missing.
func IsActive(ctx context.Context, client kubernetes.Interface) error {
	found, err := getAll(ctx, client)
	if err != nil {
		return err
	}
	for k, o := range found {
		if o.isOff() {
			return fmt.Errorf("%s %s: %w", kind(k), Name, ErrOff)
		}
		if !o.binds() {
			return fmt.Errorf("the %s %s binds no webhook yet", kind(k), Name)
		}
	}
	return nil
}

// IsInactive returns nil if kube-apiserver does not call the webhook.
func IsInactive(ctx context.Context, client kubernetes.Interface) error {
	found, err := getAll(ctx, client)
	if err != nil {
		return err
	}
	for k, o := range found {
		if len(o.webhooks()) > 0 {
			return fmt.Errorf("the %s %s still binds a webhook", kind(k), Name)
		}
	}
	return nil
}

// NamespaceSelector returns the selector of the namespaces in which the webhook mutates objects:
// all of them if it is not registered under Name, because no namespace is excluded then.
func NamespaceSelector(ctx context.Context, client kubernetes.Interface) (labels.Selector, error) {
	live, err := mutating.in(client).get(ctx)
	if err != nil {
		return nil, err
	}
	entries := live.webhooks()
	i := slices.IndexFunc(entries, func(one entry) bool { return one.Name == mutateName })
	if i < 0 || entries[i].NamespaceSelector == nil {
		return labels.Everything(), nil
	}
	selector, err := metav1.LabelSelectorAsSelector(entries[i].NamespaceSelector)
	if err != nil {
		return nil, fmt.Errorf("read the namespaceSelector of the %s %s: %w", mutating, Name, err)
	}
	return selector, nil
}

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

// Inspected is one configuration as the API has it, for those who only look.
type Inspected struct {
	Kind   string
	Exists bool
	// Off: the annotation says so.
	Off bool
	// Active: it holds more than the entry of the probe.
	Active bool
	// CABundles are those of all entries.
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

// ProbePod is a TrialPod that every replica answers when it is created with dryRun.
func ProbePod(id string) *corev1.Pod { return probePod(id) }

// Answered reports whether the Pod that came back has passed one of the replicas.
func Answered(pod *corev1.Pod, id string) bool {
	return id != "" && pod.Annotations[answerAnnotation] == id
}

// Concerns reports whether kube-apiserver refused a request because of our webhook: it
// said no, or could not be called. The names of the entries are in what users are told.
func Concerns(err error) bool {
	return err != nil && slices.ContainsFunc([]string{mutateName, validateName, probeName},
		func(name string) bool { return strings.Contains(err.Error(), name) })
}

// ErrOff says that a user has switched the webhook off.
var ErrOff = errors.New("the webhook is switched off by the annotation " + Annotation + "=" + AnnotationOff)

// IsActive asks the API whether kube-apiserver calls the webhook, which is not registered
// before it is proved. It is nil if so, wraps ErrOff if a user does not want it, and says
// otherwise what is missing.
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

// IsInactive asks the API whether nothing is called any more, and says otherwise what is.
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

// NamespaceSelector reads from the API in which namespaces objects are mutated by the
// webhook. That is all of them if it is not registered under Name: nobody has excluded
// one then.
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

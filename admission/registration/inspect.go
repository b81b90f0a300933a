// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
)

// Inspected is one configuration as the API has it, for those who only look.
type Inspected struct {
	Kind   string
	Exists bool
	// Off: the annotation says so.
	Off bool
	// Bound: it holds more than the entry of the probe.
	Bound bool
	// CABundles are those of all entries.
	CABundles [][]byte
}

// Inspect reads both configurations, the mutating one first.
func Inspect(ctx context.Context, client kubernetes.Interface) ([]Inspected, error) {
	all := make([]Inspected, 0, kinds)
	for k := range kinds {
		o, err := get(ctx, client, k)
		if err != nil {
			return nil, fmt.Errorf("read the %s %s: %w", k, Name, err)
		}
		seen := o.found()
		one := Inspected{
			Kind: k.String(), Exists: seen.exists, Off: seen.off,
			Bound: slices.ContainsFunc(seen.entries, func(e entry) bool { return e.Name != probeName }),
		}
		for i := range seen.entries {
			one.CABundles = append(one.CABundles, seen.entries[i].ClientConfig.CABundle)
		}
		all = append(all, one)
	}
	return all, nil
}

// ProbePod is a TrialPod that every replica answers when it is created with dryRun.
func ProbePod(id string) *corev1.Pod { return probePod(id) }

// Answered tells whether the Pod that came back has passed one of the replicas.
func Answered(pod *corev1.Pod, id string) bool {
	return id != "" && pod.Annotations[answerAnnotation] == id
}

// Concerns tells whether kube-apiserver refused a request because of our webhook: it
// said no, or could not be called. The names of the entries are in what users are told.
func Concerns(err error) bool {
	return err != nil && slices.ContainsFunc([]string{mutateName, validateName, probeName},
		func(name string) bool { return strings.Contains(err.Error(), name) })
}

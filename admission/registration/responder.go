// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"

	"sa-controller-manager/admission"
)

// ProbeResponder answers probe Pods, and records that of this process. It belongs into the chain of
// every replica, but not into the registered rules. Every user may send a probe: it is a dry run, and
// returns only its own annotation.
type ProbeResponder struct {
	awaited, arrived atomic.Value // IDs
}

var _ admission.Mutator = (*ProbeResponder)(nil)

// Rules match the creation of Pods.
func (*ProbeResponder) Rules() []admission.Rule { return []admission.Rule{podCreation()} }

func podCreation() admission.Rule {
	return admission.Rule{Resource: "pods", Operations: []admission.Operation{admission.Create}}
}

// Ready returns nil.
func (*ProbeResponder) Ready(context.Context) error { return nil }

// Admit answers a probe and ignores all other Pods.
func (p *ProbeResponder) Admit(_ context.Context, request *admission.Request, response *admission.Response) error {
	// Very few Pods are probes, and searching for a word is cheaper than decoding JSON.
	if !request.DryRun || !bytes.Contains(request.Object, []byte(probeAnnotation)) {
		return nil
	}
	var pod struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := admission.Decode(request.Object, &pod); err != nil {
		return nil //nolint:nilerr // not a probe; plugins that need the Pod report the error
	}
	id := pod.Metadata.Annotations[probeAnnotation]
	if id == "" {
		return nil
	}
	value, err := json.Marshal(id)
	if err != nil {
		return admission.Internal(err)
	}
	if id == p.awaited.Load() {
		p.arrived.Store(id)
	}
	response.Patch = append(response.Patch, admission.PatchOperation{
		Op: "add", Path: "/metadata/annotations/" + strings.ReplaceAll(answerAnnotation, "/", "~1"), Value: value,
	})
	return nil
}

// await makes the probe with that ID the one that hasArrived is about.
func (p *ProbeResponder) await(id string) {
	if p != nil {
		p.awaited.Store(id)
	}
}

// hasArrived reports whether this process has received the probe with that ID.
func (p *ProbeResponder) hasArrived(id string) bool { return p != nil && p.arrived.Load() == id }

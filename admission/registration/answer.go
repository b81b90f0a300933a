// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"sa-controller-manager/admission"
)

// rememberedProbes bounds what strangers can make an Answerer remember.
const rememberedProbes = 64

// Answerer answers probe Pods and remembers that they came. It belongs into the chain
// of every replica, and not into the rules that are registered. Anybody may send a
// probe: it is a dry run, and all that it gets is its own annotation back.
type Answerer struct {
	mu      sync.Mutex
	arrived []string // the newest last
}

var _ admission.Mutator = (*Answerer)(nil)

// Rules match the creation of Pods.
func (*Answerer) Rules() []admission.Rule { return []admission.Rule{podCreation()} }

// Ready is always nil.
func (*Answerer) Ready(context.Context) error { return nil }

// Admit answers a probe and leaves all else alone.
func (a *Answerer) Admit(_ context.Context, request *admission.Request, response *admission.Response) error {
	if !request.DryRun {
		return nil
	}
	// Next to no Pod is a probe, and looking for a word costs less than reading JSON.
	if !bytes.Contains(request.Object, []byte(probeAnnotation)) {
		return nil
	}
	var pod struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := admission.Decode(request.Object, &pod); err != nil {
		return nil //nolint:nilerr // not a probe; plugins that need the Pod say what is wrong with it
	}
	id := pod.Metadata.Annotations[probeAnnotation]
	if id == "" {
		return nil
	}
	value, err := json.Marshal(id)
	if err != nil {
		return admission.Internal(err)
	}
	a.remember(id)
	response.Patch = append(response.Patch, admission.PatchOperation{
		Op: "add", Path: "/metadata/annotations/" + strings.ReplaceAll(answerAnnotation, "/", "~1"), Value: value,
	})
	return nil
}

// Arrived tells whether the probe with that id came here.
func (a *Answerer) Arrived(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.arrived, id)
}

func (a *Answerer) remember(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.arrived, id) {
		return
	}
	a.arrived = append(a.arrived, id)
	if len(a.arrived) > rememberedProbes {
		a.arrived = slices.Delete(a.arrived, 0, 1)
	}
}

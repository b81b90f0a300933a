// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/admission"
)

// ProbeResponder answers probe Pods, and records that of this process. It belongs into the chain of
// every replica, but not into the registered rules. Every user may send a probe: it is a dry run, and
// returns only its own annotation.
type ProbeResponder struct {
	awaited, arrived atomic.Pointer[string] // an ID, and the answer to it
}

// againPrefix begins the answer to a probe that came on a connection which had brought a request before:
// whether kube-apiserver can make a new one is not proved by it.
const againPrefix = "again/"

var _ admission.Mutator = (*ProbeResponder)(nil)
var _ admission.Validator = (*ProbeResponder)(nil)

// Rules match the creation of Pods.
func (*ProbeResponder) Rules() []admission.Rule { return []admission.Rule{podCreation()} }

func podCreation() admission.Rule {
	return admission.Rule{Resource: "pods", Operations: []admission.Operation{admission.Create}}
}

// Ready returns nil.
func (*ProbeResponder) Ready(context.Context) error { return nil }

// Admit answers a probe and ignores all other Pods. The next probe comes on another connection.
func (p *ProbeResponder) Admit(_ context.Context, request *admission.Request, response *admission.Response) error {
	id := probeID(request)
	if id == "" {
		return nil
	}
	answer := id
	if !request.First {
		answer = againPrefix + id
	}
	value, err := json.Marshal(answer)
	if err != nil {
		return admission.Internal(err)
	}
	if awaited := p.awaited.Load(); awaited != nil && id == *awaited {
		p.arrived.Store(&answer)
	}
	response.Close = true
	response.Patch = append(response.Patch, admission.PatchOperation{
		Op: "add", Path: "/metadata/annotations/" + strings.ReplaceAll(answerAnnotation, "/", "~1"), Value: value,
	})
	return nil
}

// Validate closes the connection of a probe, too: kube-apiserver calls both paths on the same ones, so the next
// probe would always come on the one that has just brought this call.
func (*ProbeResponder) Validate(_ context.Context, request *admission.Request, response *admission.Response) error {
	response.Close = probeID(request) != ""
	return nil
}

// probeID returns the ID of a probe, "" for any other request.
func probeID(request *admission.Request) string {
	// A probe is small, whatever other webhooks add to it, and its answer repeats it. Very few Pods are probes, and
	// searching for a word is cheaper than decoding JSON.
	if !request.DryRun || len(request.Object) > 32<<10 || !bytes.Contains(request.Object, []byte(probeAnnotation)) {
		return ""
	}
	var pod metav1.PartialObjectMetadata
	if admission.Decode(request.Object, &pod) != nil {
		return "" // plugins that need the Pod report the error
	}
	return pod.Annotations[probeAnnotation]
}

// await makes the probe with that ID the one that answer is about.
func (p *ProbeResponder) await(id string) {
	if p != nil {
		p.awaited.Store(&id)
		p.arrived.Store(nil)
	}
}

// answer returns the answer of this process to the awaited probe, "" if it has not arrived.
func (p *ProbeResponder) answer() string {
	if p == nil || p.arrived.Load() == nil {
		return ""
	}
	return *p.arrived.Load()
}

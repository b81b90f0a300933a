// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/admission"
)

// ProbeResponder answers probe Pods, and records that of this process. Every replica
// has one. Every user may send a probe: it is a dry run, and
// returns only its own annotation.
type ProbeResponder struct {
	awaited, arrived atomic.Pointer[string] // an ID, and the answer to it
}

// againPrefix begins the answer to a probe that came on a connection which had brought a request before:
// whether kube-apiserver can make a new one is not proved by it.
const againPrefix = "again/"

// Probe answers a probe, and ignores all other requests. The next probe comes on another connection. A call that only validates
// closes the connection, too: kube-apiserver calls both paths on the same ones, so the next probe would always come on the one
// that has just brought this call.
func (p *ProbeResponder) Probe(request *admission.Request, response *admission.Response, mutates bool) {
	id := probeID(request)
	if id == "" {
		return
	}
	response.Close = true
	if !mutates {
		return
	}
	answer := id
	if !request.First {
		answer = againPrefix + id
	}
	if awaited := p.awaited.Load(); awaited != nil && id == *awaited {
		p.arrived.Store(&answer)
	}
	value, _ := json.Marshal(answer) //nolint:errchkjson // a string cannot fail
	response.Patch = append(response.Patch, admission.PatchOperation{
		Op: "add", Path: "/metadata/annotations/" + strings.ReplaceAll(answerAnnotation, "/", "~1"), Value: value,
	})
}

// probeID returns the ID of a probe, "" for any other request.
func probeID(request *admission.Request) string {
	// A probe is small, even with what other webhooks add to it, and its answer repeats it. Very few Pods are probes, and
	// searching for a word is cheaper than decoding JSON.
	if !request.DryRun || len(request.Object) > 32<<10 || !bytes.Contains(request.Object, []byte(probeAnnotation)) {
		return ""
	}
	var pod metav1.PartialObjectMetadata
	if admission.Decode(request.Object, &pod) != nil {
		return "" // the plugin reports the error
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

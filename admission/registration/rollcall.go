// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Where the roll call is.
const (
	RollCallNamespace = metav1.NamespaceSystem
	RollCallName      = "sa-controller-manager-hosts"
)

// The keys of its ConfigMap. Each replica that is there writes the round under the key of
// its host.
const (
	keySchema     = "schema-version"
	keyRound      = "round"
	keyEndpoint   = "endpoint"
	hostPrefix    = "host."
	schemaVersion = "1"
)

// rollCall is the leader's question who is there, and the answers.
type rollCall struct {
	// round is different each time, so that no answer counts for a later question.
	round string
	// endpoint is what every kube-apiserver is to call. Who does not serve it is not there.
	endpoint string
	// answers are the rounds that were answered last, by host.
	answers map[string]string

	// foreign is a schema version that this program does not know; then nothing is read
	// and nothing may be written.
	foreign string
}

// readRollCall reads what is there; nil is nothing.
func readRollCall(from *corev1.ConfigMap) rollCall {
	if from == nil {
		return rollCall{}
	}
	if version := from.Data[keySchema]; version != "" && version != schemaVersion {
		return rollCall{foreign: version}
	}
	c := rollCall{round: from.Data[keyRound], endpoint: from.Data[keyEndpoint], answers: map[string]string{}}
	for key, round := range from.Data {
		if host, ok := strings.CutPrefix(key, hostPrefix); ok {
			c.answers[host] = round
		}
	}
	return c
}

// answered tells whether the replica on host has answered a round.
func (c rollCall) answered(host, round string) bool {
	return round != "" && c.round == round && c.answers[host] == round
}

// asks is what found, nil if there is none, becomes with a new question. The answers to
// the last one go.
func asks(found *corev1.ConfigMap, round, endpoint string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: RollCallNamespace, Name: RollCallName}}
	if found != nil {
		c.ObjectMeta = *found.ObjectMeta.DeepCopy()
	}
	c.Data = map[string]string{keySchema: schemaVersion, keyRound: round, keyEndpoint: endpoint}
	return c
}

// answers is what found becomes with the answer of a host.
func answers(found *corev1.ConfigMap, host string) *corev1.ConfigMap {
	c := found.DeepCopy()
	c.Data = maps.Clone(found.Data)
	c.Data[hostPrefix+host] = found.Data[keyRound]
	return c
}

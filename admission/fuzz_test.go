// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/json"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// FuzzReview sends any bytes as a review. Whatever they are, the answer is a
// well-formed AdmissionReview, and it has the uid if an independent reader finds one.
func FuzzReview(f *testing.F) {
	for _, seed := range []string{
		"", "null", "[]", "{}", createReview("v1"), createReview("v1beta1"), createReview("v2"), createReview("v1")[:120],
		createReview("v1") + "}", reviewOf("v1", `,"operation":"DELETE","object":null,"oldObject":{}`),
		reviewOf("v1", `,"operation":"CREATE","object":[]`),
		reviewOf("v1", `,"operation":"CREATE","object":{"a":{"b":[1e400,"\ud800"]}},"object":7,"dryRun":null`),
		`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":""}}`, `{"request":{"uid":"a"},"request":{"uid":"b"}}`,
		`{"request":{"uid":{}},"request":{"uid":"0"}}`, "\xff\xfe{\x00}",
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	webhook := NewWebhook(WebhookConfig{Plugin: patchEverything()})
	f.Fuzz(func(t *testing.T, body []byte, mutate bool) {
		path := "/validate"
		if mutate {
			path = "/mutate"
		}
		answer := ask(t, webhook, post(path, string(body)))
		response := answer.Response
		if version := answer.APIVersion; version != "admission.k8s.io/v1" && version != "admission.k8s.io/v1beta1" {
			t.Errorf("apiVersion %q", version)
		}
		if uid, ok := uidOf(body); ok && uid != string(response.UID) {
			t.Errorf("the answer has uid %q, want %q", response.UID, uid)
		}
		if response.Patch != nil && !json.Valid(response.Patch) {
			t.Errorf("the patch is no JSON: %q", response.Patch)
		}
	})
}

// uidOf reads the uid with the standard library. It has no opinion on bodies that are
// read in more than one way: with repeated names or invalid UTF-8.
func uidOf(body []byte) (string, bool) {
	var top map[string]json.RawMessage
	if !jsontext.Value(body).IsValid() || json.Unmarshal(body, &top) != nil || top["request"] == nil {
		return "", false
	}
	var request map[string]json.RawMessage
	if json.Unmarshal(top["request"], &request) != nil || request["uid"] == nil {
		return "", false
	}
	var uid string
	if json.Unmarshal(request["uid"], &uid) != nil {
		return "", false
	}
	return uid, true
}

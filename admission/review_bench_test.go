// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	_ "embed"
	"encoding/json"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
)

// captured is what kube-apiserver v1.36.3 sends for a Pod of two containers.
//
//go:embed serviceaccount/testdata/review/create.json
var captured []byte

// BenchmarkDecodeReview reads a review, and beside it does what most webhooks do. Neither
// looks into the Pod.
func BenchmarkDecodeReview(b *testing.B) {
	b.Run("ours", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(captured)))
		for b.Loop() {
			if _, _, err := decodeReview(captured); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(captured)))
		for b.Loop() {
			if err := json.Unmarshal(captured, &admissionv1.AdmissionReview{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

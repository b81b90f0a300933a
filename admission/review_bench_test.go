// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	_ "embed"
	"testing"
)

// captured is what kube-apiserver v1.36.3 sends for a Pod of two containers.
//
//go:embed serviceaccount/testdata/review/create.json
var captured []byte

// BenchmarkDecodeReview reads a review. It does not look into the Pod.
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
}

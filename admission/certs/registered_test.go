// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"slices"
	"testing"
	"time"

	"sa-controller-manager/internal/pki"
	"sa-controller-manager/internal/testutil"
)

func TestRegistered(t *testing.T) {
	t.Parallel()
	cast := newCast(t, map[string]int{"a": 0, "b": 0})
	a, b := pki.CertPEM(cast["a"].cert), pki.CertPEM(cast["b"].cert)
	both := slices.Concat(a, b)
	for name, tc := range map[string]struct {
		reason  string
		minutes [][][]byte // what is registered, minute by minute
		want    int        // since which of them b is known, -1 if it is not
	}{
		"Unknown":   {want: -1},
		"Nothing":   {reason: "nobody can be refused", minutes: [][][]byte{{}, {}}, want: 0},
		"Everybody": {minutes: [][][]byte{{a, a}, {both, both}, {both, both}}, want: 1},
		"NotAll":    {reason: "one webhook lacks it", minutes: [][][]byte{{both, a}, {both, a}}, want: -1},
		"Late":      {minutes: [][][]byte{{both, a}, {a, both}, {both, b}}, want: 2},
		"Gone":      {minutes: [][][]byte{{both}, {a}}, want: -1},
		"Again":     {reason: "it may be unknown to callers meanwhile", minutes: [][][]byte{{both}, {a}, {both}}, want: 2},
		"First":     {reason: "nothing was registered before", minutes: [][][]byte{{}, {b}}, want: 1},
		"Damaged":   {minutes: [][][]byte{{b, []byte("rubbish")}}, want: -1},
	} {
		t.Run(name, func(t *testing.T) {
			begin, got := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), -1
			r := &registered{}
			for i, caBundles := range tc.minutes {
				r.observe(caBundles, false, begin.Add(time.Duration(i)*time.Minute))
			}
			if since, ok := r.of(cast["b"].cert); ok {
				got = int(since.Sub(begin) / time.Minute)
			}
			testutil.Check(t, tc.reason+": known since minute", tc.want, got)
		})
	}
}

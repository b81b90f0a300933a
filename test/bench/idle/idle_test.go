// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package idle

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBetween(t *testing.T) {
	t.Parallel()
	start := time.Unix(0, 0)
	before := observation{at: start, cpu: time.Second, rssAnon: 99999, requests: 100}
	after := observation{at: start.Add(2 * time.Minute), cpu: 4 * time.Second, rssAnon: 2048, requests: 130}
	want := Cost{Program: "kcm", CPU: 1.5, RSSAnon: 2, Requests: 15}
	if diff := cmp.Diff(want, between("kcm", before, after)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

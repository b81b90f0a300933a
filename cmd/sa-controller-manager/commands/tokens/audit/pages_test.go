// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"
)

// TestNamespacesOverPages: one that goes on over several pages is read once, and no namespace
// without Secrets is.
func TestNamespacesOverPages(t *testing.T) {
	t.Parallel()
	world := &server{namespaces: 2, perSpace: 1700, token: "x"}
	auditor := &Auditor{Client: world.start(t), Keys: testKeys(t), Rules: Rules{Now: now}, Reach: true}
	seen := map[string]int{}
	if _, err := auditor.Run(t.Context(), func(rows []Row) error {
		for i := range rows {
			seen[rows[i].Namespace+strconv.FormatBool(rows[i].Referenced)+strings.Join(rows[i].Pods, "")]++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if world.requests["pods"] != 2 || world.requests["serviceaccounts"] != 2 || world.requests["subjectaccessreviews"] != 6 {
		t.Errorf("requests %v, want 2, 2 and 6", world.requests)
	}
	if seen["ns-00000trueuser"] != 1 || seen["ns-00001trueuser"] != 1 || seen["ns-00000false"] != 1699 {
		t.Errorf("saw %v", seen)
	}
}

// TestManyNamespaces: each is read once, and with its neighbours, in the order of the list, also if a page is requested
// too late.
func TestManyNamespaces(t *testing.T) {
	t.Parallel()
	world := &server{namespaces: 50, perSpace: 100, late: 2_000, token: string(tokenSecret(t, "x", testkeys.RSA2048()).Data["token"])}
	auditor := &Auditor{Client: world.start(t), Keys: testKeys(t), Rules: Rules{Now: now, UnusedFor: time.Hour}, Reach: true}
	seen := 0
	summary, err := auditor.Run(t.Context(), func(rows []Row) error {
		for i := range rows {
			if want := fmt.Sprintf("ns-%05d/token-%05d", seen/100, seen%100); rows[i].Namespace+"/"+rows[i].Name != want {
				t.Errorf("row %d is of %s/%s, want %s", seen, rows[i].Namespace, rows[i].Name, want)
			}
			seen++
		}
		return nil
	})
	testutil.Must(t, err)
	got := []int{seen, summary.Examined, summary.Shown, summary.Findings[UnknownKey], summary.Findings[Unmounted]}
	testutil.Check(t, "rows, examined, shown, unknown keys, unmounted", []int{5_000, 5_000, 5_000, 5_000, 4_950}, got)
	want := map[string]int{"secrets": 11, "pods": 50, "serviceaccounts": 50, "subjectaccessreviews": 150}
	testutil.Check(t, "requests", want, world.requests)
	if most := world.most.Load(); most > parallel {
		t.Errorf("%d requests at a time, want %d at most", most, parallel)
	}
}

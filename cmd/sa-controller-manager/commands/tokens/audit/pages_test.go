// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// gone is kube-apiserver's answer to a page that is asked for too late.
func gone(next string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too late", ListMeta: metav1.ListMeta{Continue: next},
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	expireOnce := func(at int, next string) func(int) *metav1.Status {
		expired := false
		return func(offset int) *metav1.Status {
			if expired || offset != at {
				return nil
			}
			expired = true
			return gone(next)
		}
	}
	cases := map[string]struct {
		reason string
		expire func(offset int) *metav1.Status
		// want is how many requests; wantErr that it ends
		want    int
		wantErr string
	}{
		"plain":    {"three pages", nil, 3, ""},
		"goes on":  {"the answer says where", expireOnce(1000, "1000"), 4, ""},
		"for good": {"the answer does not say where", expireOnce(1000, ""), 3, "list token Secrets: too late"},
		"always":   {"it ends", func(int) *metav1.Status { return gone("0") }, 2, "list token Secrets: too late"},
		"other error": {"", func(int) *metav1.Status {
			return &metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 403,
				Reason: metav1.StatusReasonForbidden, Message: "no",
			}
		}, 1, "list token Secrets: no"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			world := &server{namespaces: 13, perSpace: 100, token: "x", expire: tc.expire}
			client := world.start(t)
			var got []string
			err := (&Auditor{Client: client}).pages(t.Context(), func(page *corev1.SecretList) error {
				for i := range page.Items {
					got = append(got, page.Items[i].Namespace+"/"+page.Items[i].Name)
				}
				return nil
			})
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != tc.wantErr || world.requests["secrets"] != tc.want {
				t.Fatalf("%s: error %q after %d requests, want %q after %d", tc.reason, text, world.requests["secrets"], tc.wantErr, tc.want)
			}
			if err != nil {
				return
			}
			if len(got) != 1300 {
				t.Errorf("%s: %d Secrets, want 1300", tc.reason, len(got))
			}
			for i, key := range got {
				if want := fmt.Sprintf("ns-%05d/token-%05d", i/100, i%100); key != want {
					t.Fatalf("%s: Secret %d is %s, want %s", tc.reason, i, key, want)
				}
			}
		})
	}
}

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

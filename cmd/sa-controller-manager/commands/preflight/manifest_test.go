// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/internal/testutil"
)

// TestManifest: the files grant what the table has, part by part, and nothing else.
func TestManifest(t *testing.T) {
	t.Parallel()
	var want, got []runtime.Object
	for _, rules := range [][]Rule{StandardRules(options.New()), OptionalRules()} {
		text, err := Manifest(rules)
		testutil.Must(t, err)
		for document := range strings.SplitSeq(text, "\n---\n") {
			object, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), []byte(document))
			if err != nil {
				t.Fatalf("%v in\n%s", err, document)
			}
			got = append(got, object)
		}
		for _, key := range rolesOf(rules, Accesses(rules)) {
			want = append(want, key.role(rules), key.binding())
		}
	}
	testutil.Check(t, "objects", byName(want), byName(got))
}

func byName(objects []runtime.Object) map[string]runtime.Object {
	all := map[string]runtime.Object{}
	for _, object := range objects {
		named := object.(interface{ GetName() string })
		all[fmt.Sprintf("%T %s", object, named.GetName())] = object
	}
	return all
}

// TestNothingIsGrantedTwice: what one role has twice is a mistake too.
func TestNothingIsGrantedTwice(t *testing.T) {
	t.Parallel()
	rules := all()
	for _, rule := range rules {
		if rule.Why == "" {
			t.Errorf("%s: no reason for %v", rule.Part, Accesses([]Rule{rule}))
		}
	}
	for _, key := range rolesOf(rules, Accesses(rules)) {
		seen := map[Access]bool{}
		for _, rule := range key.rules(rules) {
			for _, access := range Accesses([]Rule{rule}) {
				if seen[access] {
					t.Errorf("the role %s grants twice: %s", key.name(), access)
				}
				seen[access] = true
			}
		}
	}
}

// TestStandardLeavesTheOptionsOut is about the identity of a process as the manifests run it:
// its webhook may read no Secret but its own CA.
func TestStandardLeavesTheOptionsOut(t *testing.T) {
	t.Parallel()
	for _, rule := range StandardRules(options.New()) {
		if rule.Part != "webhook" {
			continue
		}
		for _, access := range Accesses([]Rule{rule}) {
			if access.Resource == secrets && access.Namespace == "" || access.Resource == pods && access.Verb == "get" {
				t.Errorf("the webhook is granted: %s", access)
			}
		}
	}
}

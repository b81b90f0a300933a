// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/admission"
	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// request is one for a Pod named web in namespace ns, as far as not said otherwise.
func request(operation admission.Operation, change func(*admission.Request)) *admission.Request {
	r := &admission.Request{
		Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Namespace: "ns",
		Name:      "web",
		Operation: operation,
	}
	if change != nil {
		change(r)
	}
	return r
}

// decide sends r through a chain with just the plugin: first mutation, then validation,
// as the apiserver does.
func decide(t *testing.T, plugin admission.Plugin, r *admission.Request) error {
	t.Helper()
	chain := admission.Chain{{Name: "plugin", Plugin: plugin}}
	if err := chain.Admit(t.Context(), r, &admission.Response{}); err != nil {
		return err
	}
	return chain.Validate(t.Context(), r, &admission.Response{})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

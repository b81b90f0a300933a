// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package earlier

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"sa-controller-manager/internal/testutil"
)

// TestHarms is what may go wrong with a policy that changes Pods before they have account, volume and pull secrets.
func TestHarms(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ condition, patch, want string }{
		"None":    {condition: "!has(object.spec.serviceAccountName) || object.spec.serviceAccountName == 'x'"},
		"Account": {condition: `object.spec.serviceAccountName == "default"`, want: " (" + harmAccount + ")"},
		"Volumes": {patch: `[JSONPatch{op: "add", path: "/spec/volumes/-", value: "x"}]`, want: " (" + harmVolumes + ")"},
		"Both": {
			patch: `[JSONPatch{op: "add", path: "/spec/imagePullSecrets/-", value: "x"}]`, want: " (" + harmVolumes + "; " + harmPulling +
				")",
		},
	} {
		spec := admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "x", Expression: tc.condition}},
			Mutations:       []admissionregistrationv1.Mutation{{JSONPatch: &admissionregistrationv1.JSONPatch{Expression: tc.patch}}},
		}
		testutil.Check(t, name, tc.want, harms(&spec))
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/admission"
	"sa-controller-manager/admission/plugins"
	"sa-controller-manager/internal/testutil"
)

// The plugin that judges what a Pod asks for itself does not stand in the way of a proof,
// of doctor and of webhook missed.
func TestTrialPodPassesSecurityContextDeny(t *testing.T) {
	t.Parallel()
	plugin, err := plugins.NewSecurityContextDeny(nil)
	testutil.Must(t, err)
	object, err := json.Marshal(TrialPod())
	testutil.Must(t, err)
	request := &admission.Request{
		Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"}, Operation: admission.Create, DryRun: true, Object: object,
	}
	testutil.Must(t, plugin.(admission.Validator).Validate(t.Context(), request, &admission.Response{}))
}

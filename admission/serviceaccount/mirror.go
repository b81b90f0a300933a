// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"errors"

	"sa-controller-manager/admission"
)

// checkMirror refuses a mirror pod that could use anything of its namespace: a kubelet
// must not be able to hand itself an account's identity or Secrets by creating Pods.
func (p *Plugin) checkMirror(request *admission.Request, pod *pod) error {
	if pod.Spec.accountName() != "" {
		return admission.Forbidden(request, errors.New("a mirror pod may not reference service accounts"))
	}
	for _, reference := range pod.Spec.secretReferences() {
		if reference.secret != "" {
			return admission.Forbidden(request, errors.New("a mirror pod may not reference secrets"))
		}
	}
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].projectsToken() {
			return admission.Forbidden(request, errors.New("a mirror pod may not use ServiceAccountToken volume projections"))
		}
	}
	return nil
}

func (v *volume) projectsToken() bool {
	for _, source := range v.Projected.Sources {
		if source.ServiceAccountToken != nil {
			return true
		}
	}
	return false
}

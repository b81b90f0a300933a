// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import corev1 "k8s.io/api/core/v1"

// securityContexts returns those of all containers that have one: of init containers,
// containers and ephemeral containers.
func securityContexts(spec *corev1.PodSpec) []*corev1.SecurityContext {
	var found []*corev1.SecurityContext
	add := func(securityContext *corev1.SecurityContext) {
		if securityContext != nil {
			found = append(found, securityContext)
		}
	}
	for i := range spec.InitContainers {
		add(spec.InitContainers[i].SecurityContext)
	}
	for i := range spec.Containers {
		add(spec.Containers[i].SecurityContext)
	}
	for i := range spec.EphemeralContainers {
		add(spec.EphemeralContainers[i].SecurityContext)
	}
	return found
}

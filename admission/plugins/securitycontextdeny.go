// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sa-controller-manager/admission"
)

// SecurityContextDeny is the name of the plugin that NewSecurityContextDeny builds.
const SecurityContextDeny = "SecurityContextDeny"

// NewSecurityContextDeny builds a plugin that refuses Pods which set their user, groups or SELinux
// label. Kubernetes had it until 1.29. Unlike there, ephemeral containers that are added to a
// running Pod are checked too.
func NewSecurityContextDeny(io.Reader) (admission.Plugin, error) {
	return &securityContextDeny{}, nil
}

type securityContextDeny struct{ admission.Handler }

func (*securityContextDeny) Rules() []admission.Rule {
	return []admission.Rule{
		{Resource: "pods", Operations: []admission.Operation{admission.Create, admission.Update}},
		{Resource: "pods", SubResource: "ephemeralcontainers", Operations: []admission.Operation{admission.Update}},
	}
}

func (*securityContextDeny) Validate(_ context.Context, request *admission.Request, _ *admission.Response) error {
	var pod corev1.Pod
	if err := admission.Decode(request.Object, &pod); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("read the pod: %v", err))
	}
	if reason := deniedContext(&pod.Spec); reason != nil {
		return admission.Forbidden(request, reason)
	}
	return nil
}

// deniedContext returns an error with upstream's text for the first field that is set and must not
// be.
func deniedContext(spec *corev1.PodSpec) error {
	if err := deniedPodContext(spec.SecurityContext); err != nil {
		return err
	}
	for _, container := range securityContexts(spec) {
		if container.SELinuxOptions != nil {
			return errors.New("SecurityContext.SELinuxOptions is forbidden")
		}
		if container.RunAsUser != nil {
			return errors.New("SecurityContext.RunAsUser is forbidden")
		}
	}
	return nil
}

func deniedPodContext(pod *corev1.PodSecurityContext) error {
	if pod == nil {
		return nil
	}
	for _, field := range []struct {
		name string
		set  bool
	}{
		{"SupplementalGroups", pod.SupplementalGroups != nil},
		{"SELinuxOptions", pod.SELinuxOptions != nil},
		{"RunAsUser", pod.RunAsUser != nil},
		{"FSGroup", pod.FSGroup != nil},
	} {
		if field.set {
			return fmt.Errorf("pod.Spec.SecurityContext.%s is forbidden", field.name)
		}
	}
	return nil
}

// securityContexts returns the security contexts of init containers, containers and ephemeral
// containers.
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

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"sa-controller-manager/admission"
)

// DenyEscalatingExec is the name of the plugin that NewDenyEscalatingExec builds.
const DenyEscalatingExec = "DenyEscalatingExec"

// NewDenyEscalatingExec returns a factory of the plugin that refuses exec into and attach to Pods
// that are privileged or share the node's processes or IPC: exec there gives root on the node.
// Kubernetes had it until 1.20.
//
// It reads the Pod on every call, as Kubernetes did. Unlike there, init and ephemeral containers
// are checked too.
func NewDenyEscalatingExec(client corev1client.PodsGetter) admission.Factory {
	return func(io.Reader) (admission.Plugin, error) {
		return &denyEscalatingExec{client: client}, nil
	}
}

type denyEscalatingExec struct {
	admission.Handler

	client corev1client.PodsGetter
}

func (*denyEscalatingExec) Rules() []admission.Rule {
	connect := []admission.Operation{admission.Connect}
	return []admission.Rule{
		{Resource: "pods", SubResource: "exec", Operations: connect},
		{Resource: "pods", SubResource: "attach", Operations: connect},
	}
}

func (d *denyEscalatingExec) Validate(ctx context.Context, request *admission.Request, _ *admission.Response) error {
	pod, err := d.client.Pods(request.Namespace).Get(ctx, request.Name, metav1.GetOptions{})
	if err != nil {
		return admission.Forbidden(request, err)
	}
	if reason := escalation(&pod.Spec); reason != nil {
		return admission.Forbidden(request, reason)
	}
	return nil
}

// escalation returns an error with upstream's text if a process of the Pod could reach the node.
func escalation(spec *corev1.PodSpec) error {
	if spec.HostPID {
		return errors.New("cannot exec into or attach to a container using host pid")
	}
	if spec.HostIPC {
		return errors.New("cannot exec into or attach to a container using host ipc")
	}
	for _, container := range securityContexts(spec) {
		if container.Privileged != nil && *container.Privileged {
			return errors.New("cannot exec into or attach to a privileged container")
		}
	}
	return nil
}

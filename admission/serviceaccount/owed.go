// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Owed is what the plugin would add to a Pod that exists, were it created now. Pull
// secrets are not looked at: nothing tells which ones an account had at the time.
type Owed struct {
	// Account: the Pod names no account. Every Pod that the plugin has admitted does.
	Account bool
	// Token: Pod and account want a token mounted, and a container lacks it.
	Token bool
	// Served: somebody has seen to the Pod's token, as the plugin or the author does.
	// A container that lacks the token all the same was added afterwards.
	Served bool
}

// Owed decides by the plugin's own rules, without waiting and without any request. A
// nil account does not exist: its Pods would be refused, so they are owed no token.
// Where a token Secret is mounted if there is one, nothing reports whether there was, so
// no token is owed either. Pod and account are only read.
func (c Config) Owed(existing *corev1.Pod, account *corev1.ServiceAccount) Owed {
	pod := readPod(existing)
	if pod.isMirror() {
		return Owed{}
	}
	mayLackSecret := c.Mode == Secret && !c.RequireAPIToken
	return Owed{
		Account: pod.Spec.accountName() == "",
		Token:   account != nil && !mayLackSecret && c.wantsToken(pod, account),
		Served:  pod.Spec.servesToken(),
	}
}

// AccountOf is the account that the Pod has, or would be given.
func AccountOf(existing *corev1.Pod) string {
	if name := readPod(existing).Spec.accountName(); name != "" {
		return name
	}
	return defaultAccount
}

// servesToken reports whether anything in the Pod is there for the sake of a token.
func (s *podSpec) servesToken() bool {
	mounts := func(c *container) bool { return !c.lacksMount() }
	return slices.ContainsFunc(s.InitContainers, mounts) || slices.ContainsFunc(s.Containers, mounts) ||
		slices.ContainsFunc(s.Volumes, func(v volume) bool { return strings.HasPrefix(v.Name, projectedPrefix) })
}

// readPod is decodePod for a typed Pod, as far as Owed looks into it.
func readPod(typed *corev1.Pod) *pod {
	p := &pod{Spec: &podSpec{
		ServiceAccountName:           typed.Spec.ServiceAccountName,
		ServiceAccount:               typed.Spec.DeprecatedServiceAccount,
		AutomountServiceAccountToken: typed.Spec.AutomountServiceAccountToken,
		InitContainers:               readContainers(typed.Spec.InitContainers),
		Containers:                   readContainers(typed.Spec.Containers),
	}}
	p.Metadata.Name, p.Metadata.Annotations = typed.Name, typed.Annotations
	for i := range typed.Spec.Volumes {
		p.Spec.Volumes = append(p.Spec.Volumes, volume{Name: typed.Spec.Volumes[i].Name})
	}
	return p
}

func readContainers(typed []corev1.Container) []*container {
	containers := make([]*container, 0, len(typed))
	for i := range typed {
		c := &container{Name: typed[i].Name}
		for _, mount := range typed[i].VolumeMounts {
			c.VolumeMounts = append(c.VolumeMounts, volumeMount{Name: mount.Name, MountPath: mount.MountPath})
		}
		containers = append(containers, c)
	}
	return containers
}

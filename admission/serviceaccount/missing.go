// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Missing says what the plugin would add to an existing Pod if it were created now. It ignores pull
// secrets: the ones that the account had at the time are unknown.
type Missing struct {
	// Account reports that the Pod names no account. Every Pod that the plugin has admitted does.
	Account bool
	// Token reports that Pod and account want a token mounted, and a container lacks it.
	Token bool
	// TokenElsewhere reports that the Pod has a token volume or mount, added by the plugin or the
	// author. Then a container that lacks the token was added later.
	TokenElsewhere bool
}

// MissingFrom applies the plugin's own rules, without waiting and without requests. A nil account
// does not exist: its Pods would be refused, so no token is missing. No token is missing either if
// the plugin mounts a token Secret only if there is one, because it is unknown whether there was
// one. Pod and account are not changed.
func (c Config) MissingFrom(existing *corev1.Pod, account *corev1.ServiceAccount) Missing {
	pod := readPod(existing)
	if pod.isMirror() {
		return Missing{}
	}
	mayLackSecret := c.Mode == Secret && !c.RequireAPIToken
	return Missing{
		Account:        pod.Spec.accountName() == "",
		Token:          account != nil && !mayLackSecret && c.wantsToken(pod, account),
		TokenElsewhere: pod.Spec.hasToken(),
	}
}

// AccountOf returns the name of the account that the Pod has, or would get.
func AccountOf(existing *corev1.Pod) string {
	return cmp.Or(readPod(existing).Spec.accountName(), defaultAccount)
}

// hasToken reports whether the Pod has a mount or a volume for a token.
func (s *podSpec) hasToken() bool {
	mounts := func(c *container) bool { return !c.lacksMount() }
	return slices.ContainsFunc(s.InitContainers, mounts) || slices.ContainsFunc(s.Containers, mounts) ||
		slices.ContainsFunc(s.Volumes, func(v volume) bool { return strings.HasPrefix(v.Name, projectedPrefix) })
}

// readPod converts the fields of a typed Pod that MissingFrom uses.
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

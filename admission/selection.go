// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Selection holds the flags that enable plugins. They mean the same as kube-apiserver's
// (k8s.io/apiserver pkg/server/options/admission.go), except that --admission-control keeps its
// order, as it did in Kubernetes 1.9.
type Selection struct {
	// Enable adds plugins to the default ones (--enable-admission-plugins). Order does not matter.
	Enable []string
	// Disable removes plugins (--disable-admission-plugins).
	Disable []string
	// Exact is the complete list, in order (--admission-control). Nil means that the flag was not
	// given; empty means no plugins. It excludes the other two.
	Exact []string
}

// InAPIServer returns the plugins of kube-apiserver v1.37 and v1.36 that do not exist here. They need
// what only kube-apiserver has, such as its storage, its authorizer, its own types, or a place in the
// chain before the webhooks. A test compares the list with the real binary of v1.37 and with a list
// of v1.36, which has JobValidation and PodGroupWorkloadExists besides.
func InAPIServer() []string {
	return strings.Fields(`AlwaysPullImages CertificateApproval CertificateSigning CertificateSubjectRestriction
		ClusterTrustBundleAttest DefaultIngressClass DefaultStorageClass DefaultTolerationSeconds DenyServiceExternalIPs
		EventRateLimit ExtendedResourceToleration ImagePolicyWebhook JobValidation LimitPodHardAntiAffinityTopology LimitRanger
		MutatingAdmissionPolicy MutatingAdmissionWebhook NamespaceAutoProvision NamespaceExists NodeDeclaredFeatureValidator
		NodeRestriction OwnerReferencesPermissionEnforcement PersistentVolumeClaimResize PodGroupProtection
		PodGroupWorkloadExists PodNodeSelector PodResizeValidator PodSecurity PodTolerationRestriction PodTopologyLabels Priority
		ResourceQuota RuntimeClass StorageObjectInUseProtection TaintNodesByCondition ValidatingAdmissionPolicy
		ValidatingAdmissionWebhook`)
}

// Elsewhere returns the plugins in the flags that stay in kube-apiserver. They are logged and not
// an error, because users copy lists of plugins from its flags.
func (s Selection) Elsewhere() []string {
	named := slices.Concat(s.Exact, s.Enable, s.Disable)
	return slices.DeleteFunc(InAPIServer(), func(name string) bool { return !slices.Contains(named, name) })
}

// Names returns the plugins that run, in call order. Order lists all plugins that exist,
// onByDefault those that run unless the flags name them.
func (s Selection) Names(order, onByDefault []string) []string {
	if s.Exact != nil {
		elsewhere := s.Elsewhere()
		return slices.DeleteFunc(slices.Clone(s.Exact), func(name string) bool { return slices.Contains(elsewhere, name) })
	}
	var names []string
	for _, name := range order {
		on := slices.Contains(onByDefault, name) && !slices.Contains(s.Disable, name)
		if on || slices.Contains(s.Enable, name) {
			names = append(names, name)
		}
	}
	return names
}

// Validate returns every error in the flags: names that neither registry nor kube-apiserver knows,
// and flags that contradict each other.
func (s Selection) Validate(registry Registry) []error {
	var problems []error
	if s.Exact != nil && (s.Enable != nil || s.Disable != nil) {
		problems = append(problems,
			errors.New("--admission-control and --enable-admission-plugins/--disable-admission-plugins are mutually exclusive"))
	}
	for _, flag := range []struct {
		name    string
		plugins []string
	}{
		{"--admission-control", s.Exact},
		{"--enable-admission-plugins", s.Enable},
		{"--disable-admission-plugins", s.Disable},
	} {
		for _, plugin := range flag.plugins {
			if err := registry.Check(plugin); err != nil && !slices.Contains(InAPIServer(), plugin) {
				problems = append(problems, fmt.Errorf("%s: %w", flag.name, err))
			}
		}
	}
	for _, plugin := range s.Enable {
		if slices.Contains(s.Disable, plugin) {
			problems = append(problems, fmt.Errorf("--enable-admission-plugins and --disable-admission-plugins both name %q", plugin))
		}
	}
	for i, plugin := range s.Exact {
		if slices.Index(s.Exact, plugin) < i { // the intended place is unknown
			problems = append(problems, fmt.Errorf("--admission-control names %q more than once", plugin))
		}
	}
	return problems
}

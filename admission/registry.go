// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Factory builds a plugin from its own configuration, which is YAML or JSON. Config
// is nil when the plugin has none.
type Factory func(config io.Reader) (Plugin, error)

// Registry knows plugins by name and builds those that are enabled. It is filled once,
// from an explicit list, and then only read.
type Registry struct {
	factories map[string]Factory
	order     []string
}

// NewRegistry returns an empty Registry.
func NewRegistry() *Registry { return &Registry{factories: map[string]Factory{}} }

// Register adds a plugin. A name can be taken only once, and not by a plugin that
// stays in kube-apiserver.
func (r *Registry) Register(name string, factory Factory) error {
	if _, taken := r.factories[name]; taken {
		return fmt.Errorf("admission plugin %q is registered twice; registered are %s", name, r.list())
	}
	if slices.Contains(apiserverPlugins(), name) {
		return fmt.Errorf("admission plugin %q stays in kube-apiserver, so its name cannot be registered", name)
	}
	r.factories[name] = factory
	r.order = append(r.order, name)
	return nil
}

// Order lists the names as they were registered, which is the order they run in unless
// the flags give another one.
func (r *Registry) Order() []string { return slices.Clone(r.order) }

// Registered lists the names in alphabetical order.
func (r *Registry) Registered() []string { return slices.Sorted(maps.Keys(r.factories)) }

// Check is nil if name is registered. Otherwise it says which names are, or where the
// plugin of that name stays.
func (r *Registry) Check(name string) error {
	if _, ok := r.factories[name]; ok {
		return nil
	}
	if slices.Contains(apiserverPlugins(), name) {
		return fmt.Errorf("admission plugin %q stays in kube-apiserver: set it in the flags of kube-apiserver; registered here are %s", name, r.list())
	}
	return fmt.Errorf("admission plugin %q is unknown; registered are %s", name, r.list())
}

// Build makes the named plugins, each with its part of configuration (nil for none),
// and chains them in the order of names. Each counts in metrics, which may be nil.
func (r *Registry) Build(names []string, configuration *Configuration, metrics *Metrics) (Chain, error) {
	chain := make(Chain, 0, len(names))
	for _, name := range names {
		if err := r.Check(name); err != nil {
			return nil, err
		}
		config, err := configuration.For(name)
		if err != nil {
			return nil, err
		}
		plugin, err := r.factories[name](config)
		if err != nil {
			return nil, fmt.Errorf("admission plugin %q%s: %w", name, configuration.origin(name), err)
		}
		chain = append(chain, ChainEntry{Name: name, Plugin: plugin, Metrics: metrics})
	}
	return chain, nil
}

func (r *Registry) list() string {
	if len(r.factories) == 0 {
		return "none"
	}
	return strings.Join(r.Registered(), ", ")
}

// apiserverPlugins lists the plugins of kube-apiserver v1.36.3 that are not here (k8s.io/kubernetes
// pkg/kubeapiserver/options/plugins.go). They need what only kube-apiserver has: its
// storage, its authorizer, its own types, or a place in the chain before the webhooks.
func apiserverPlugins() []string {
	return []string{
		"AlwaysPullImages",
		"CertificateApproval",
		"CertificateSigning",
		"CertificateSubjectRestriction",
		"ClusterTrustBundleAttest",
		"DefaultIngressClass",
		"DefaultStorageClass",
		"DefaultTolerationSeconds",
		"DenyServiceExternalIPs",
		"EventRateLimit",
		"ExtendedResourceToleration",
		"ImagePolicyWebhook",
		"JobValidation",
		"LimitPodHardAntiAffinityTopology",
		"LimitRanger",
		"MutatingAdmissionPolicy",
		"MutatingAdmissionWebhook",
		"NamespaceAutoProvision",
		"NamespaceExists",
		"NodeDeclaredFeatureValidator",
		"NodeRestriction",
		"OwnerReferencesPermissionEnforcement",
		"PersistentVolumeClaimResize",
		"PodGroupProtection",
		"PodGroupWorkloadExists",
		"PodNodeSelector",
		"PodResizeValidator",
		"PodSecurity",
		"PodTolerationRestriction",
		"PodTopologyLabels",
		"Priority",
		"ResourceQuota",
		"RuntimeClass",
		"StorageObjectInUseProtection",
		"TaintNodesByCondition",
		"ValidatingAdmissionPolicy",
		"ValidatingAdmissionWebhook",
	}
}

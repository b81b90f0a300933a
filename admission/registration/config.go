// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"sa-controller-manager/admission"
)

// Name is the name of both configurations. The apiserver calls webhooks in the order of these
// names; ours sorts before injectors, because they rely on the account name that it sets.
const Name = "00-sa-controller-manager"

// The annotation that stops all writing, and its value.
const (
	Annotation    = "sa-controller-manager/registration"
	AnnotationOff = "off"
)

// Mode is how the configurations refer to the webhook.
type Mode string

// The modes.
const (
	None    Mode = "none" // nothing is written
	URL     Mode = "url"
	Service Mode = "service"
	Static  Mode = "static" // files that kube-apiserver of this host reads (KEP-5793)
)

// Object is an object of our own that the webhook must never decide on, because it would wait for
// itself. Namespace is empty for cluster-scoped objects.
type Object struct{ Group, Resource, Namespace, Name string }

// Spec is what to register, except for the caBundle.
type Spec struct {
	Mode Mode
	// Host is the host in the URL in modes url and static: an IP address or a DNS name.
	Host string
	// Port is the port of Host or of the Service.
	Port int
	// ServiceNamespace and ServiceName name the Service in mode service.
	ServiceNamespace, ServiceName string

	FailurePolicy admissionregistrationv1.FailurePolicyType
	// Timeout is one to thirty seconds, in whole seconds.
	Timeout time.Duration

	// MutatingRules and ValidatingRules are the rules of the enabled plugins (admission.Chain).
	// Without rules there is no webhook of that kind.
	MutatingRules, ValidatingRules []admission.Rule
	// AllowBroadRules accepts rules that match resources which they do not name.
	AllowBroadRules bool

	// Ordinary says that the plugins do for a Pod what the policy podpolicy.Completion does, and nothing else.
	Ordinary bool

	// Own objects are excluded from rules that match them.
	Own []Object
	// Account in Namespace is that of our Pods, which need nothing from the webhook, and must be able to
	// start when none of them is there to answer it. Empty for a process without one.
	Namespace, Account string
}

// PerHost reports whether each kube-apiserver reaches only the process on its own host.
func (s Spec) PerHost() bool {
	return (s.Mode == URL || s.Mode == Static) && (s.Host == "localhost" || net.ParseIP(s.Host).IsLoopback())
}

// Validate returns an error for rules that are too broad. The flags have been validated before.
func (s Spec) Validate() error {
	for _, rule := range slices.Concat(s.MutatingRules, s.ValidatingRules) {
		if rule.IsBroad() && !s.AllowBroadRules {
			return fmt.Errorf(
				"the rule %q matches resources that it does not name: configure the plugin, or allow it with --webhook-allow-broad-rules", rule)
		}
	}
	return nil
}

// Endpoint returns the URL that the apiserver calls for a path, for logs and messages.
func (s Spec) Endpoint(path string) string {
	host := s.Host
	if s.Mode == Service {
		host = s.ServiceName + "." + s.ServiceNamespace + ".svc"
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(s.Port)) + path
}

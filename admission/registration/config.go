// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"net"
	"strconv"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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

	// MutatingRules and ValidatingRules are the rules of the plugin.
	MutatingRules, ValidatingRules []admissionregistrationv1.RuleWithOperations

	// Ordinary says that the plugin does for a Pod what the policy podpolicy.Completion does, and nothing else.
	Ordinary bool

	// Account in Namespace is that of our Pods, which need nothing from the webhook, and must be able to
	// start when none of them is there to answer it. Empty for a process without one.
	Namespace, Account string
}

// PerHost reports whether each kube-apiserver reaches only the process on its own host.
func (s Spec) PerHost() bool {
	return (s.Mode == URL || s.Mode == Static) && (s.Host == "localhost" || net.ParseIP(s.Host).IsLoopback())
}

// Endpoint returns the URL that the apiserver calls for a path, for logs and messages.
func (s Spec) Endpoint(path string) string {
	host := s.Host
	if s.Mode == Service {
		host = s.ServiceName + "." + s.ServiceNamespace + ".svc"
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(s.Port)) + path
}

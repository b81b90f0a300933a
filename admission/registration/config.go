// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"sa-controller-manager/admission"
)

// Name is that of both configurations. It sorts before those of injectors, because
// they rely on the account name that we set and webhooks are called in this order.
const Name = "00-sa-controller-manager"

// The annotation that stops all writing, and its value.
const (
	Annotation    = "sa-controller-manager/registration"
	AnnotationOff = "off"
)

// Mode is how the apiserver is told to reach the webhook.
type Mode string

// The modes.
const (
	None    Mode = "none" // nothing is written
	URL     Mode = "url"
	Service Mode = "service"
)

// Object is one object of our own that the webhook must never decide on: it would
// wait for itself. Namespace is empty for cluster-scoped objects.
type Object struct{ Group, Resource, Namespace, Name string }

// Spec is what to register, but for the caBundle.
type Spec struct {
	Mode Mode
	// Host is what the apiserver dials in mode url: an IP address or a DNS name.
	Host string
	// Port is that of Host, or the Service's own one.
	Port int
	// ServiceNamespace and ServiceName are for mode service.
	ServiceNamespace, ServiceName string

	FailurePolicy admissionregistrationv1.FailurePolicyType
	// Timeout is one to thirty seconds; the apiserver counts in whole ones.
	Timeout time.Duration

	// MutatingRules and ValidatingRules are what the enabled plugins match
	// (admission.Chain). Without any, nothing of that kind is called.
	MutatingRules, ValidatingRules []admission.Rule
	// AllowBroadRules accepts rules that reach resources which they do not name.
	AllowBroadRules bool

	// Own are never covered. Rules that cannot reach them need no exclusion.
	Own []Object
	// ExcludedNamespaces are never covered with all that is in them. Their Pods run
	// without what the webhook would have given them.
	ExcludedNamespaces []string
}

// Validate returns everything that is wrong with the spec.
func (s Spec) Validate() error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch s.Mode {
	case None:
		return nil
	case URL:
		if net.ParseIP(s.Host) == nil && len(validation.IsDNS1123Subdomain(s.Host)) > 0 {
			add("webhook URL host %q: want an IP address or a DNS name", s.Host)
		}
	case Service:
		if problems := validation.IsDNS1035Label(s.ServiceName); len(problems) > 0 {
			add("webhook service name %q: %s", s.ServiceName, problems[0])
		}
		if problems := validation.IsDNS1123Label(s.ServiceNamespace); len(problems) > 0 {
			add("webhook service namespace %q: %s", s.ServiceNamespace, problems[0])
		}
	default:
		add("webhook registration %q: want none, url or service", s.Mode)
	}
	if s.Port < 1 || s.Port > 65535 {
		add("webhook port %d: want 1 to 65535", s.Port)
	}
	if s.FailurePolicy != admissionregistrationv1.Fail && s.FailurePolicy != admissionregistrationv1.Ignore {
		add("webhook failure policy %q: want Fail or Ignore", s.FailurePolicy)
	}
	if s.Timeout < time.Second || s.Timeout > 30*time.Second || s.Timeout%time.Second != 0 {
		add("webhook timeout %s: want whole seconds, 1s to 30s", s.Timeout)
	}
	for _, rule := range slices.Concat(s.MutatingRules, s.ValidatingRules) {
		if rule.IsBroad() && !s.AllowBroadRules {
			add("the rule %q reaches resources that it does not name: configure the plugin, or allow it with --webhook-allow-broad-rules", rule)
		}
	}
	return errors.Join(errs...)
}

// Endpoint is the URL that the apiserver calls for a path, for people to read.
func (s Spec) Endpoint(path string) string {
	host := s.Host
	if s.Mode == Service {
		host = s.ServiceName + "." + s.ServiceNamespace + ".svc"
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(s.Port)) + path
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package accounttemplate reads the file that says how ServiceAccounts look when this program
// creates them. It decides only: it changes no account and makes no request. A Template is immutable
// and safe for concurrent use; nil is one without rules.
package accounttemplate

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const schemaVersion = 1

// Fields are those of a ServiceAccount that a template sets.
type Fields struct {
	AutomountServiceAccountToken *bool                         `json:"automountServiceAccountToken"`
	ImagePullSecrets             []corev1.LocalObjectReference `json:"imagePullSecrets"`
	Labels                       map[string]string             `json:"labels"`
	Annotations                  map[string]string             `json:"annotations"`
}

// rule sets fields of the accounts that it matches. An empty condition matches all.
type rule struct {
	Namespaces        []string              `json:"namespaces"` // patterns of path.Match
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector"`
	Accounts          []string              `json:"accounts"`
	Fields

	selector labels.Selector // nil without NamespaceSelector
}

// Template is what the rules of a file say.
type Template struct{ rules []rule }

// Parse reads the YAML file strictly. Its error names every bad field.
func Parse(data []byte) (*Template, error) {
	var file struct {
		SchemaVersion int    `json:"schemaVersion"`
		Rules         []rule `json:"rules"`
	}
	document, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("want YAML: %w", err)
	}
	unknown, err := json.UnmarshalStrict(document, &file)
	if err := errors.Join(append(unknown, err)...); err != nil {
		return nil, fmt.Errorf("want \"schemaVersion: %d\" and \"rules:\": %w", schemaVersion, err)
	}
	if file.SchemaVersion != schemaVersion {
		return nil, fmt.Errorf("schemaVersion is %d, want %d", file.SchemaVersion, schemaVersion)
	}
	if len(file.Rules) == 0 {
		return nil, errors.New("rules: want at least one")
	}
	var problems field.ErrorList
	for i := range file.Rules {
		problems = append(problems, file.Rules[i].complete(field.NewPath("rules").Index(i))...)
	}
	if err := problems.ToAggregate(); err != nil {
		return nil, err
	}
	return &Template{rules: file.Rules}, nil
}

// complete validates the rule and compiles its selector.
func (r *rule) complete(at *field.Path) field.ErrorList {
	var problems field.ErrorList
	for i, pattern := range r.Namespaces {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			problems = append(problems,
				field.Invalid(at.Child("namespaces").Index(i), pattern, "want a name in which * and ? may stand for others"))
		}
	}
	if r.NamespaceSelector != nil {
		problems = append(problems, metav1validation.ValidateLabelSelector(r.NamespaceSelector,
			metav1validation.LabelSelectorValidationOptions{}, at.Child("namespaceSelector"))...)
		r.selector, _ = metav1.LabelSelectorAsSelector(r.NamespaceSelector) // it has been validated
	}
	names := func(at *field.Path, name string) {
		for _, message := range validation.IsDNS1123Subdomain(name) {
			problems = append(problems, field.Invalid(at, name, message))
		}
	}
	for i, account := range r.Accounts {
		names(at.Child("accounts").Index(i), account)
	}
	for i, secret := range r.ImagePullSecrets {
		names(at.Child("imagePullSecrets").Index(i).Child("name"), secret.Name)
	}
	problems = append(problems, metav1validation.ValidateLabels(r.Labels, at.Child("labels"))...)
	problems = append(problems, apivalidation.ValidateAnnotations(r.Annotations, at.Child("annotations"))...)
	if r.AutomountServiceAccountToken == nil && len(r.ImagePullSecrets)+len(r.Labels)+len(r.Annotations) == 0 {
		problems = append(problems, field.Required(at, "the rule sets no field"))
	}
	return problems
}

// NeedsLabels reports whether For uses the labels of the namespace for this account.
func (t *Template) NeedsLabels(namespace, account string) bool {
	return t != nil && slices.ContainsFunc(t.rules, func(r rule) bool { return r.selector != nil && r.names(namespace, account) })
}

// For returns the fields of an account. All rules that match count, in their order: a later one wins,
// and pull secrets add up.
func (t *Template) For(namespace, account string, namespaceLabels map[string]string) Fields {
	var fields Fields
	if t == nil {
		return fields
	}
	for _, r := range t.rules {
		if !r.names(namespace, account) || r.selector != nil && !r.selector.Matches(labels.Set(namespaceLabels)) {
			continue
		}
		if r.AutomountServiceAccountToken != nil {
			fields.AutomountServiceAccountToken = new(*r.AutomountServiceAccountToken)
		}
		for _, secret := range r.ImagePullSecrets {
			if !slices.Contains(fields.ImagePullSecrets, secret) {
				fields.ImagePullSecrets = append(fields.ImagePullSecrets, secret)
			}
		}
		fields.Labels, fields.Annotations = merge(fields.Labels, r.Labels), merge(fields.Annotations, r.Annotations)
	}
	return fields
}

func (r *rule) names(namespace, account string) bool {
	matches := func(pattern string) bool {
		matched, _ := path.Match(pattern, namespace) // Parse has tried it
		return matched
	}
	return (len(r.Namespaces) == 0 || slices.ContainsFunc(r.Namespaces, matches)) &&
		(len(r.Accounts) == 0 || slices.Contains(r.Accounts, account))
}

func merge(into, from map[string]string) map[string]string {
	if into == nil {
		return maps.Clone(from)
	}
	maps.Copy(into, from)
	return into
}

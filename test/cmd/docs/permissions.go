// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sa-controller-manager/cmd/sa-controller-manager/app/permissions"
	apiyaml "sigs.k8s.io/yaml"
)

// rolesHeader begins a file of roles.
const rolesHeader = `# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Made by "make update-manifests" from the table in app/permissions.
`

// commentWidth is where comments in YAML are wrapped.
const commentWidth = 88

// roles is a file below manifests/permissions: the roles of those rules, the reason of each rule
// as a comment, and their bindings.
func roles(rules []permissions.Rule) (string, error) {
	var documents []string
	for _, object := range permissions.Grant(rules, permissions.Accesses(rules)) {
		text, err := commented(object, rules)
		if err != nil {
			return "", fmt.Errorf("print %T: %w", object, err)
		}
		documents = append(documents, text)
	}
	return rolesHeader + strings.Join(documents, "---\n"), nil
}

// commented is an object as YAML, with the reason above each rule of a role.
func commented(object runtime.Object, rules []permissions.Rule) (string, error) {
	plain, err := apiyaml.Marshal(object)
	if err != nil {
		return "", err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(plain, &document); err != nil {
		return "", err
	}
	fields := document.Content[0].Content
	at := slices.IndexFunc(fields, func(field *yaml.Node) bool { return field.Value == "rules" })
	if at < 0 {
		return string(plain), nil // a binding
	}
	reasons, err := reasonsIn(object, rules)
	if err != nil {
		return "", err
	}
	for i, rule := range fields[at+1].Content {
		rule.HeadComment = wrapped(reasons[i])
		for _, list := range rule.Content {
			list.Style = yaml.FlowStyle
		}
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err = encoder.Encode(&document)
	return out.String(), err
}

// reasonsIn are those of the rules that a role has, in its order.
func reasonsIn(role runtime.Object, rules []permissions.Rule) ([]string, error) {
	object, err := meta.Accessor(role)
	if err != nil {
		return nil, err
	}
	var reasons []string
	for _, rule := range rules {
		if string(rule.Part) == object.GetLabels()["app.kubernetes.io/component"] && rule.Namespace == object.GetNamespace() {
			reasons = append(reasons, rule.Why)
		}
	}
	return reasons, nil
}

// wrapped is text as lines of a comment.
func wrapped(text string) string {
	var lines []string
	line := "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > commentWidth {
			lines = append(lines, line)
			line = "#"
		}
		line += " " + word
	}
	return strings.Join(append(lines, line), "\n")
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bytes"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	apiyaml "sigs.k8s.io/yaml"
)

// manifestHeader begins a file that Manifest has made.
const manifestHeader = `# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# Made by "make update-manifests" from the table in commands/preflight.
`

// commentWidth is where comments in YAML are wrapped.
const commentWidth = 88

// Manifest is a file below manifests/permissions: the roles of those rules, the reason of
// each rule as a comment, and their bindings.
func Manifest(rules []Rule) (string, error) {
	var out bytes.Buffer
	out.WriteString(manifestHeader)
	for i, key := range rolesOf(rules, Accesses(rules)) {
		role, err := key.commentedRole(rules)
		if err != nil {
			return "", fmt.Errorf("print the role %s: %w", key.name(), err)
		}
		binding, err := apiyaml.Marshal(key.binding())
		if err != nil {
			return "", fmt.Errorf("print the binding of the role %s: %w", key.name(), err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		fmt.Fprintf(&out, "%s---\n%s", role, binding)
	}
	return out.String(), nil
}

// commentedRole is the role as YAML with the reason above each of its rules.
func (k roleKey) commentedRole(rules []Rule) ([]byte, error) {
	plain, err := apiyaml.Marshal(k.role(rules))
	if err != nil {
		return nil, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(plain, &document); err != nil {
		return nil, err
	}
	role := document.Content[0]
	for i, field := range role.Content {
		if field.Value != "rules" {
			continue
		}
		for j, rule := range k.rules(rules) {
			node := role.Content[i+1].Content[j]
			node.HeadComment = wrapped(rule.Why)
			for _, list := range node.Content {
				list.Style = yaml.FlowStyle
			}
		}
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err = encoder.Encode(&document)
	return out.Bytes(), err
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

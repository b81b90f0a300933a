// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package accounttemplate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/internal/testutil"
)

const example = `
schemaVersion: 1
rules:
- automountServiceAccountToken: false
- namespaces: [team-*, shop]
  accounts: [default]
  imagePullSecrets: [{name: registry}]
  labels: {tier: low, from: names}
- namespaceSelector:
    matchLabels: {mirror: "yes"}
  imagePullSecrets: [{name: mirror}, {name: registry}]
  labels: {tier: high}
  annotations: {note: mirrored}
- namespaces: [kube-*]
  automountServiceAccountToken: true
`

func TestFor(t *testing.T) {
	t.Parallel()
	secrets := func(names ...string) (refs []corev1.LocalObjectReference) {
		for _, name := range names {
			refs = append(refs, corev1.LocalObjectReference{Name: name})
		}
		return refs
	}
	mirror := map[string]string{"mirror": "yes"}
	cases := map[string]struct {
		reason, namespace, account string
		labels                     map[string]string
		want                       Fields
	}{
		"Pattern": {
			namespace: "team-a", account: "default", want: Fields{
				AutomountServiceAccountToken: new(false), ImagePullSecrets: secrets("registry"),
				Labels: map[string]string{"tier": "low", "from": "names"},
			},
		},
		"OtherAccount":   {namespace: "team-a", account: "builder", want: Fields{AutomountServiceAccountToken: new(false)}},
		"OtherNamespace": {namespace: "other", account: "default", want: Fields{AutomountServiceAccountToken: new(false)}},
		"LaterRuleWins": {
			reason: "labels by key; a pull secret is there once", namespace: "shop", account: "default", labels: mirror, want: Fields{
				AutomountServiceAccountToken: new(false), ImagePullSecrets: secrets("registry", "mirror"),
				Labels: map[string]string{"tier": "high", "from": "names"}, Annotations: map[string]string{"note": "mirrored"},
			},
		},
		"Exception": {namespace: "kube-system", account: "default", want: Fields{AutomountServiceAccountToken: new(true)}},
	}
	template := testutil.Get(Parse([]byte(example)))(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Twice: what the first call returned must not change the rules.
			for range 2 {
				got := template.For(tc.namespace, tc.account, tc.labels)
				testutil.Check(t, tc.reason, tc.want, got)
				clear(got.Labels)
			}
		})
	}
	testutil.Check(t, "without a file", Fields{}, (*Template)(nil).For("shop", "default", nil))
}

func TestNeedsLabels(t *testing.T) {
	t.Parallel()
	template := testutil.Get(Parse([]byte("{schemaVersion: 1, rules: [{labels: {a: b}}, {namespaces: [shop], namespaceSelector: {}, " +
		"labels: {a: b}}]}")))(t)
	testutil.Check(t, "no rule with a selector names it", false, template.NeedsLabels("bank", "default"))
	testutil.Check(t, "one does", true, template.NeedsLabels("shop", "default"))
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	rules := func(text string) string { return "{schemaVersion: 1, rules: [" + text + "]}" }
	for name, tc := range map[string]struct {
		data string
		want []string
	}{
		"NotYAML":      {"rules: [", []string{"want YAML: "}},
		"Newer":        {"schemaVersion: 2", []string{"schemaVersion is 2, want 1"}},
		"NoRules":      {rules(""), []string{"rules: want at least one"}},
		"UnknownField": {rules("{automount: false}"), []string{`unknown field "rules[0].automount"`}},
		"OtherCase":    {rules("{Labels: {a: b}}"), []string{`unknown field "rules[0].Labels"`}},
		"Twice":        {"{schemaVersion: 1, schemaVersion: 1}", []string{`key "schemaVersion" already set`}},
		"NotABoolean":  {rules(`{automountServiceAccountToken: "no"}`), []string{"automountServiceAccountToken of type bool"}},
		"SetsNothing":  {rules("{labels: {a: b}}, {namespaces: [shop]}"), []string{"rules[1]: Required value: the rule sets no field"}},
		"EveryField": {
			rules(`{namespaces: ["[", ""], accounts: [A], imagePullSecrets: [{name: ""}], labels: {"a b": c}, annotations: {"/": x},` +
				`namespaceSelector: {matchExpressions: [{key: a, operator: is}]}}`),
			[]string{
				`rules[0].namespaces[0]: Invalid value: "["`, `rules[0].namespaces[1]: Invalid value: ""`,
				`rules[0].accounts[0]: Invalid value: "A"`,
				`rules[0].imagePullSecrets[0].name: Invalid value: ""`, `rules[0].labels: Invalid value: "a b"`,
				`rules[0].annotations: Invalid value: "/"`, `rules[0].namespaceSelector.matchExpressions[0].operator: Invalid value: "is"`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			template, err := Parse([]byte(tc.data))
			testutil.Require(t, err != nil, "accepted as %+v", template)
			for _, want := range tc.want {
				testutil.CheckContains(t, "error", want, err.Error())
			}
		})
	}
}

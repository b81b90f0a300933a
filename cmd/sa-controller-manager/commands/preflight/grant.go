// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/manifests"
)

// rolePrefix begins the name of every role.
const rolePrefix = "system:sa-controller-manager:"

// kcmUser is kube-controller-manager's own user. Its permissions are not ours to widen.
const kcmUser = "system:kube-controller-manager"

// OfKCM reports whether the process has been given kube-controller-manager's identity.
func (r Report) OfKCM() bool { return r.User == kcmUser }

// Grant returns the roles, and their bindings to user, that grant what is missing. Each
// role is complete, with all that its part needs, because applying one replaces it. For
// another user than that of manifests/permissions they have names of their own, so that
// nothing is taken from that one.
func Grant(user string, rules []Rule, missing []Access) []runtime.Object {
	var objects []runtime.Object
	for _, key := range rolesOf(rules, missing) {
		if user != manifests.User {
			key.suffix = ":" + strings.NewReplacer("/", "-", "%", "-").Replace(user)
		}
		objects = append(objects, key.role(rules), key.binding(user))
	}
	return objects
}

// roleKey says which role a rule is in.
type roleKey struct {
	part      Part
	namespace string
	suffix    string // of the name
}

func (k roleKey) name() string { return rolePrefix + string(k.part) + k.suffix }

func rolesOf(rules []Rule, missing []Access) []roleKey {
	var keys []roleKey
	for _, rule := range rules {
		key := roleKey{part: rule.Part, namespace: rule.Namespace}
		if slices.Contains(keys, key) || !slices.ContainsFunc(missing, func(a Access) bool { return a.of(rule) }) {
			continue
		}
		keys = append(keys, key)
	}
	return keys
}

// rules are those of the role.
func (k roleKey) rules(all []Rule) []Rule {
	var own []Rule
	for _, rule := range all {
		if rule.Part == k.part && rule.Namespace == k.namespace {
			own = append(own, rule)
		}
	}
	return own
}

func (k roleKey) role(rules []Rule) runtime.Object {
	var policy []rbacv1.PolicyRule
	for _, rule := range k.rules(rules) {
		policy = append(policy, rule.policy())
	}
	if k.namespace == "" {
		return &rbacv1.ClusterRole{TypeMeta: kind("ClusterRole"), ObjectMeta: k.meta(), Rules: policy}
	}
	return &rbacv1.Role{TypeMeta: kind("Role"), ObjectMeta: k.meta(), Rules: policy}
}

func (k roleKey) binding(user string) runtime.Object {
	subjects := []rbacv1.Subject{subject(user)}
	if k.namespace == "" {
		return &rbacv1.ClusterRoleBinding{TypeMeta: kind("ClusterRoleBinding"), ObjectMeta: k.meta(), Subjects: subjects, RoleRef: k.ref("ClusterRole")}
	}
	return &rbacv1.RoleBinding{TypeMeta: kind("RoleBinding"), ObjectMeta: k.meta(), Subjects: subjects, RoleRef: k.ref("Role")}
}

func (k roleKey) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: k.name(), Namespace: k.namespace, Labels: map[string]string{
		"app.kubernetes.io/name":      "sa-controller-manager",
		"app.kubernetes.io/component": string(k.part),
	}}
}

func (k roleKey) ref(kind string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: k.name()}
}

func kind(name string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: name}
}

// subject knows the user names of ServiceAccounts.
func subject(user string) rbacv1.Subject {
	if parts := strings.Split(user, ":"); len(parts) == 4 && strings.HasPrefix(user, "system:serviceaccount:") {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: parts[2], Name: parts[3]}
	}
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}
}

func (r Rule) policy() rbacv1.PolicyRule {
	if r.Path != "" {
		return rbacv1.PolicyRule{Verbs: r.Verbs, NonResourceURLs: []string{r.Path}}
	}
	policy := rbacv1.PolicyRule{Verbs: r.Verbs, APIGroups: []string{r.Group}, Resources: []string{r.Resource}}
	if r.Name != "" {
		policy.ResourceNames = []string{r.Name}
	}
	return policy
}

// YAML prints objects for kubectl apply.
func YAML(objects []runtime.Object) (string, error) {
	var out bytes.Buffer
	for i, object := range objects {
		data, err := yaml.Marshal(object)
		if err != nil {
			return "", fmt.Errorf("print %T: %w", object, err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(data)
	}
	return out.String(), nil
}

// Grant returns what grants the missing accesses to who asked; not to
// kube-controller-manager, but to the user that ought to have been it.
func (r Report) Grant(rules []Rule) []runtime.Object {
	user := r.User
	if user == "" || r.OfKCM() {
		user = manifests.User
	}
	return Grant(user, rules, r.Missing())
}

// Remedy says what the user can do about what is missing.
func (r Report) Remedy() string {
	if r.OfKCM() {
		return "this is the identity of kube-controller-manager (controller-manager.conf), which may not do this and should not; " +
			"make one of our own, with its permissions: sa-controller-manager kubeadm kubeconfig --apply-permissions"
	}
	return "apply manifests/permissions (with its component options, if that is in use), or what this prints: sa-controller-manager preflight -o grant, with the same flags"
}

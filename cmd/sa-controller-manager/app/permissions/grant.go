// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/internal/check"
	"sa-controller-manager/manifests"
)

// rolePrefix begins the name of every role.
const rolePrefix = "system:sa-controller-manager:"

// kcmUser is kube-controller-manager's own user. Its permissions are not ours to widen.
const kcmUser = "system:kube-controller-manager"

// Grant returns the roles of manifests/permissions that grant what is missing, and their bindings. Each
// role is complete, with all that its part needs, because applying one replaces it.
func Grant(rules []Rule, missing []Access) []runtime.Object {
	var objects []runtime.Object
	for _, key := range rolesOf(rules, missing) {
		objects = append(objects, key.role(rules), key.binding())
	}
	return objects
}

// roleKey says which role a rule is in.
type roleKey struct {
	part      Part
	namespace string
}

func (k roleKey) name() string { return rolePrefix + string(k.part) }

func rolesOf(rules []Rule, missing []Access) []roleKey {
	var keys []roleKey
	for _, rule := range rules {
		key := roleKey{rule.Part, rule.Namespace}
		if slices.Contains(keys, key) || !slices.ContainsFunc(missing, func(a Access) bool { return a.of(rule) }) {
			continue
		}
		keys = append(keys, key)
	}
	return keys
}

// rules are those of the role.
func (k roleKey) rules(all []Rule) []Rule {
	return slices.DeleteFunc(slices.Clone(all), func(rule Rule) bool { return roleKey{rule.Part, rule.Namespace} != k })
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

func (k roleKey) binding() runtime.Object {
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: manifests.User}}
	if k.namespace == "" {
		role := k.ref("ClusterRole")
		return &rbacv1.ClusterRoleBinding{TypeMeta: kind("ClusterRoleBinding"), ObjectMeta: k.meta(), Subjects: subjects, RoleRef: role}
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

// Grants returns, for kubectl apply, what grants the missing accesses, with the Secrets that they are for: the process may
// not create these, and what it has written to one stays. It is empty for another user than that of manifests/permissions.
func (r Report) Grants(rules []Rule) (string, error) {
	if r.User != "" && r.User != manifests.User {
		return "", nil
	}
	var documents []string
	for _, object := range Grant(rules, r.Missing()) {
		data, err := yaml.Marshal(object)
		if err != nil {
			return "", fmt.Errorf("print %T: %w", object, err)
		}
		documents = append(documents, string(data))
	}
	state, err := manifests.State()
	for _, secret := range state {
		if slices.ContainsFunc(r.Missing(), func(a Access) bool { return a.Resource == secrets && a.Name == secret.Name }) {
			documents = append(documents, string(secret.YAML))
		}
	}
	return strings.Join(documents, "---\n"), err
}

// Lacking is the fact that a {user} lacks permissions.
var Lacking = check.Fact{
	Code: "permissions-missing", Message: "{user} lacks permissions", Cost: "the parts that need them do nothing",
	Remedy: "{remedy}", Unready: true,
}

// Findings names each missing access, with a part that needs it.
func (r Report) Findings(rules []Rule) []check.Finding {
	var names []string
	for _, access := range r.Missing() {
		names = append(names, fmt.Sprintf("%s (%s)", access, PartsOf(access, rules)[0]))
	}
	const apply = "kubectl apply -k manifests/permissions{flags} (with its token-secrets and options, if those are in use; for " +
		"\"signer\" alone its directory of that name)"
	user, remedy := fmt.Sprintf("user %q", r.User), apply+" with this user as the subject, as the overlay of the Deployment does"
	switch r.User {
	case "":
		user = "this identity"
		fallthrough
	case manifests.User:
		remedy = apply + ", or what this prints: sa-controller-manager preflight -o grant, with the flags of the process"
	case kcmUser:
		remedy = "this is the identity of kube-controller-manager (controller-manager.conf), which may not do this and should not; " +
			"make one of our own, with its permissions: sa-controller-manager kubeadm kubeconfig --apply-permissions"
	}
	return Lacking.Found("{user}", user, "{remedy}", remedy).About(names)
}

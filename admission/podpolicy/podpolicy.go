// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podpolicy is about the policies of the API that act on new Pods: one refuses a Pod without an
// account while neither the webhook nor the plugin of kube-apiserver gives it one, the other completes
// ordinary Pods in kube-apiserver. Their definitions are in manifests/permissions. Nothing here creates
// or repairs them: users may do without.
package podpolicy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/internal/check"
	"sa-controller-manager/manifests"
)

// The names of the policies. The one that refuses Pods has a binding of the same name.
const (
	Name           = "sa-controller-manager-pods"
	CompletionName = "sa-controller-manager-completion"
)

// Policy is a policy with its bindings.
type Policy struct {
	Objects func() ([]manifests.Object, error) // as the manifests have them
	wrong   check.Fact
}

// The policies. Refusal refuses Pods without an account, Completion completes Pods. From Kubernetes 1.36 on
// there is what Completion needs.
var (
	Refusal = Policy{manifests.PodPolicy, check.Fact{
		Code: "policy-missing", Message: "the policy " + Name + " is missing or not that of this version",
		Cost:   "Pods without an account are admitted while the webhook is away",
		Remedy: "kubectl apply -k manifests/permissions/policy{flags}; if the webhook was unregistered: sa-controller-manager webhook register{flags}",
	}}

	Completion = Policy{manifests.Completion, check.Fact{
		Code: "completion-missing", Message: "the policy " + CompletionName + " is missing or not that of this version",
		Cost: "ordinary Pods may need the webhook, or be refused", Remedy: "kubectl apply -k manifests/permissions/completion{flags}",
	}}
)

var unwanted = check.Fact{
	Code: "completion-unwanted", Message: "there is the policy " + CompletionName + ", and our plugin is configured otherwise",
	Cost: "ordinary Pods are completed in another way than by our plugin",
	Remedy: "kubectl delete mutatingadmissionpolicybindings " + CompletionName + "-default " + CompletionName + "-kube-system{flags}, " +
		"then the rest (docs/troubleshooting.md)",
}

// access reads and deletes the objects of one kind.
type access struct {
	get    func(ctx context.Context, name string) (runtime.Object, error)
	delete func(ctx context.Context, name string, o metav1.DeleteOptions) error
}

func to[O runtime.Object](client interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (O, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}) access {
	return access{func(ctx context.Context, name string) (runtime.Object, error) {
		return client.Get(ctx, name, metav1.GetOptions{})
	}, client.Delete}
}

func accessTo(client kubernetes.Interface, kind string) access {
	api := client.AdmissionregistrationV1()
	return map[string]access{
		"MutatingAdmissionPolicy":          to(api.MutatingAdmissionPolicies()),
		"MutatingAdmissionPolicyBinding":   to(api.MutatingAdmissionPolicyBindings()),
		"ValidatingAdmissionPolicy":        to(api.ValidatingAdmissionPolicies()),
		"ValidatingAdmissionPolicyBinding": to(api.ValidatingAdmissionPolicyBindings()),
	}[kind]
}

// Problem returns how the policy differs from ours in the API, or "" if it does not. Exists reports whether
// any of its objects is there. It reads each of them by name.
func (p Policy) Problem(ctx context.Context, client kubernetes.Interface) (exists bool, problem string, err error) {
	wanted, err := p.Objects()
	if err != nil {
		return false, "", err
	}
	for _, object := range wanted {
		var wrong string
		found, err := accessTo(client, object.Kind).get(ctx, object.Name)
		switch {
		case apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
			return false, "", nil // of the kind: Kubernetes is older than 1.36
		case apierrors.IsNotFound(err):
			wrong = "there is no " + object.String()
		case err != nil:
			return exists, "", fmt.Errorf("read %s: %w", object, err)
		default:
			exists = true
			if wrong, err = difference(found, object); err != nil {
				return exists, "", fmt.Errorf("compare %s: %w", object, err)
			}
		}
		problem = cmp.Or(problem, wrong)
	}
	return exists, problem, nil
}

// Findings returns what is wrong with both policies. Only if the configuration of our plugin is ordinary may
// Completion exist (serviceaccount.Config.Ordinary).
func Findings(ctx context.Context, client kubernetes.Interface, ordinary bool) (findings []check.Finding, err error) {
	for _, policy := range []Policy{Refusal, Completion} {
		exists, problem, err := policy.Problem(ctx, client)
		switch completes := policy.wrong.Code == Completion.wrong.Code; {
		case err != nil:
			return findings, err
		case completes && !ordinary && exists:
			findings = append(findings, unwanted.Found())
		case completes && !ordinary:
		case problem != "":
			findings = append(findings, policy.wrong.Found().Because(problem))
		}
	}
	return findings, nil
}

// difference names the field of the spec that differs from the manifest, which states every default of
// kube-apiserver. Actions besides Deny are the user's business.
func difference(found runtime.Object, manifest manifests.Object) (string, error) {
	wanted := reflect.New(reflect.TypeOf(found).Elem()).Interface()
	if err := yaml.Unmarshal(manifest.YAML, wanted); err != nil {
		return "", err
	}
	if binding, ok := found.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding); ok &&
		slices.Contains(binding.Spec.ValidationActions, admissionregistrationv1.Deny) {
		binding.Spec.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
	}
	var specs [2]map[string]any
	for i, object := range []any{found, wanted} {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return "", err
		}
		specs[i], _ = fields["spec"].(map[string]any)
	}
	all := maps.Clone(specs[1])
	maps.Copy(all, specs[0])
	for _, field := range slices.Sorted(maps.Keys(all)) {
		if is, want := specs[0][field], specs[1][field]; !reflect.DeepEqual(is, want) {
			return fmt.Sprintf("the %s is not that of this version: its spec.%s is %.60s, want %.60s",
				manifest, field, fmt.Sprint(is), fmt.Sprint(want)), nil
		}
	}
	return "", nil
}

// SetAction has Refusal deny or warn, and leaves its other actions. It is a no-op if there is no binding.
func SetAction(ctx context.Context, client kubernetes.Interface, action admissionregistrationv1.ValidationAction) error {
	binding, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(ctx, Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && slices.Contains(binding.Spec.ValidationActions, action) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read ValidatingAdmissionPolicyBinding %s: %w", Name, err)
	}
	actions := []admissionregistrationv1.ValidationAction{action}
	for _, other := range binding.Spec.ValidationActions {
		if other == admissionregistrationv1.Audit {
			actions = append(actions, other)
		}
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"validationActions": actions}})
	if err != nil {
		return err
	}
	_, err = client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Patch(ctx, Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("change ValidatingAdmissionPolicyBinding %s to %s: %w", Name, action, err)
	}
	return nil
}

// Delete deletes the bindings, then the policy.
func (p Policy) Delete(ctx context.Context, client kubernetes.Interface) error {
	all, err := p.Objects()
	if err != nil {
		return err
	}
	for _, binding := range []bool{true, false} {
		for _, object := range all {
			if strings.HasSuffix(object.Kind, "Binding") != binding {
				continue
			}
			err := accessTo(client, object.Kind).delete(ctx, object.Name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("delete %s: %w", object, err)
			}
		}
	}
	return nil
}

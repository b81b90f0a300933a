// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/admission/registration"
)

// registered are both configurations with one entry of the name each.
func registered(entry string, bundle []byte) []runtime.Object {
	meta := metav1.ObjectMeta{Name: registration.Name}
	client := admissionregistrationv1.WebhookClientConfig{CABundle: bundle}
	return []runtime.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: meta, Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: entry, ClientConfig: client}},
		},
		&admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: entry, ClientConfig: client}},
		},
	}
}

// early returns the webhook of another program.
func early(name, resource string, again admissionregistrationv1.ReinvocationPolicyType) runtime.Object {
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{ReinvocationPolicy: &again, Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}},
		}}}},
	}
}

// admits answers the creation of Pods: with an error, or with a Pod that has these parts.
func admits(err error, named, mounted, answered bool) func(*testing.T, *cluster, *fake.Clientset) {
	return func(_ *testing.T, _ *cluster, client *fake.Clientset) {
		client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			pod := action.(clienttesting.CreateAction).GetObject().(*corev1.Pod).DeepCopy()
			if named {
				pod.Spec.ServiceAccountName = "default"
			}
			if mounted {
				pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{
					{Name: "kube-api-access-x", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"},
				}
			}
			if answered {
				pod.Annotations["sa-controller-manager/probe-answer"] = pod.Annotations["sa-controller-manager/probe"]
			}
			return true, pod, err
		})
	}
}

// policyThat is a MutatingAdmissionPolicy with an expression.
func policyThat(name, resource, expression string) *admissionregistrationv1.MutatingAdmissionPolicy {
	return &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{"CREATE"},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}},
				},
			}}},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: "ApplyConfiguration", ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: expression},
			}},
		},
	}
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	const entry, probe = "mutate.sa-controller-manager.webhook", "probe.sa-controller-manager.webhook"
	off, empty := registered(entry, nil), registered(entry, nil)
	empty[0].(*admissionregistrationv1.MutatingWebhookConfiguration).Webhooks = nil
	empty[1].(*admissionregistrationv1.ValidatingWebhookConfiguration).Webhooks = nil
	off[0].(*admissionregistrationv1.MutatingWebhookConfiguration).Annotations = map[string]string{
		registration.Annotation: registration.AnnotationOff,
	}
	denied := errors.New(`failed calling webhook "` + entry + `": connection refused`)
	try(t, "webhook", map[string]checkCase{
		"Called": {reason: "all is well", objects: registered(entry, nil), change: admits(nil, true, true, true)},
		"Early": {reason: "it sees Pods without a token",
			objects: append(registered(entry, nil), early("00-first", "pods", ""), early("zz-last", "pods", ""),
				early("00-again", "pods", admissionregistrationv1.IfNeededReinvocationPolicy), early("00-other", "services", "")),
			change: admits(nil, true, true, true), want: []string{
				"webhook-before-ours: MutatingWebhookConfiguration 00-again, MutatingWebhookConfiguration 00-first",
			}},
		"EarlyFiles": {
			reason: "those of the API come later, and policies do not", objects: []runtime.Object{early("00-first", "pods", ""),
				policyThat("pull", "pods", `Object{spec: Object.spec{imagePullSecrets: [Object.spec.imagePullSecrets{name: "x"}]}}`)},
			change: admits(nil, true, true, true),
			want:   []string{"webhook-before-ours: MutatingAdmissionPolicy pull (sets imagePullSecrets, and so the account's own are left out)"},
		},
		"EarlyUnbound": {
			reason: "the plugin is before all of them", objects: []runtime.Object{early("00-first", "*", "")},
			change: admits(nil, true, true, false),
		},
		"FilesAndEmptyObjects": {
			reason: "webhook register with --kubeconfig has left them", objects: empty, change: admits(nil, true, true, true),
		},
		"SwitchedOffHost": {
			reason: "a Pod shows it, and the way back is on the host", objects: empty, change: admits(nil, false, false, false),
			want:   []string{"pod-without-account"},
			remedy: "on each host: sa-controller-manager webhook register --static-registration-dir=/etc/kubernetes/",
		},
		"InTree":  {reason: "not registered, and kube-apiserver does it", change: admits(nil, true, true, false)},
		"Nobody":  {reason: "neither does it", change: admits(nil, false, false, false), want: []string{"pod-without-account"}},
		"NoToken": {reason: "half of it", change: admits(nil, true, false, false), want: []string{"pod-without-token"}},
		"CalledAndNoToken": {
			reason: "mountServiceAccountToken is false in its configuration", objects: registered(entry, nil),
			change: admits(nil, true, false, true), want: []string{"pod-without-token"},
		},
		"Uncalled": {
			reason: "registered, and not called", objects: registered(entry, nil), change: admits(nil, true, true, false),
			want: []string{"webhook-not-called"},
		},
		"Refused": {
			reason: "it cannot be called", objects: registered(entry, nil), change: admits(denied, false, false, false),
			want: []string{"registration-unreachable: failed calling webhook \"mutate.sa-controller-manager.webhook\": connection refused"},
		},
		"RefusedByFiles": {
			reason: "nothing is registered in the API, so unregister there does not reach them", change: admits(denied, false, false, false),
			want:   []string{"registration-unreachable: failed calling webhook \"mutate.sa-controller-manager.webhook\": connection refused"},
			remedy: "unregister --static-registration-dir=/etc/kubernetes/",
		},
		"Off": {
			reason: "switched off", objects: off, change: admits(nil, true, true, true),
			want: []string{"registration-off: the annotation sa-controller-manager/registration=off is on the MutatingWebhookConfiguration " +
				"00-sa-controller-manager"},
		},
		"Half": {
			reason: "one is gone", objects: registered(entry, nil)[:1], change: admits(nil, true, true, true),
			want: []string{"registration-unbound: there is no ValidatingWebhookConfiguration 00-sa-controller-manager beside the other " +
				"configuration"},
		},
		"Unproved": {reason: "only the probe is in", objects: registered(probe, nil), change: admits(nil, true, true, true),
			want: []string{"registration-unbound: the MutatingWebhookConfiguration 00-sa-controller-manager has only what proves that " +
				"kube-apiserver reaches it; the ValidatingWebhookConfiguration 00-sa-controller-manager has only what proves that " +
				"kube-apiserver reaches it"}},
		"NotAllowed": {
			reason: "a quota or RBAC refuses it", change: admits(errors.New("quota"), false, false, false), wantErr: "with dryRun: quota",
		},
		"FoundAndUnknown": {reason: "a failure does not hide what was found", objects: off,
			change: admits(errors.New("quota"), false, false, false), wantErr: "with dryRun: quota",
			want: []string{"registration-off: the annotation sa-controller-manager/registration=off is on the MutatingWebhookConfiguration " +
				"00-sa-controller-manager"}},
	})
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod/staticpodtest"
	"sa-controller-manager/internal/testutil"
)

// TestCheckPlugin: kube-apiserver's plugin goes only if our process does its work.
func TestCheckPlugin(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args []string
		want string // part of the error, "" for none
	}{
		"Default":     {},
		"OtherPlugin": {args: []string{"--enable-admission-plugins=NamespaceLifecycle"}},
		"Off": {
			[]string{"--enable-admission-plugins=AlwaysAdmit", "--disable-admission-plugins=ServiceAccount"}, "its plugin ServiceAccount is off",
		},
		"Ignore":  {[]string{"--webhook-failure-policy=Ignore"}, "--webhook-failure-policy=Ignore"},
		"NoPort":  {[]string{"--webhook-port=0"}, "it serves no webhook"},
		"Unknown": {args: []string{"--of-another-version"}},
		"Exact":   {[]string{"--admission-control=NamespaceLifecycle"}, "its plugin ServiceAccount is off"},
		"File":    {args: []string{"--admission-control-config-file=/etc/kubernetes/pki/as-default.yaml"}},
		"NoFile": {
			[]string{"--admission-control-config-file=/etc/kubernetes/pki/none"},
			"our --admission-control-config-file: read admission configuration: open ROOT/etc/kubernetes/pki/none: no such file",
		},
		"NoToken": {
			[]string{"--admission-control-config-file=/etc/kubernetes/pki/no-token.yaml"},
			"Pods would get no token (mountServiceAccountToken: false in ROOT/",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newControlPlane(t, "v1.37")
			for file, mount := range map[string]string{"as-default": "true", "no-token": "false"} {
				p.write(t, "pki/"+file+".yaml", []byte(admissionHead+
					"- name: ServiceAccount\n  configuration:\n    mountServiceAccountToken: "+mount+"\n"))
			}
			tc.want = strings.ReplaceAll(tc.want, "ROOT", strings.TrimSuffix(p.dir, "/etc/kubernetes"))
			err := p.config.checkPlugin(staticpodtest.Own(append([]string{theKey}, tc.args...)))
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	p := newControlPlane(t, "v1.37")
	p.config.Rewrite = false
	p.write(t, "manifests/sa-controller-manager.yaml",
		staticpodtest.Own([]string{theKey, "--webhook-failure-policy=Ignore", "--webhook-registration=url"}))
	if err := Takeover(t.Context(), p.config); err == nil || !strings.Contains(err.Error(), "--webhook-failure-policy=Ignore") {
		t.Errorf("a takeover: got %v, want a refusal", err)
	}
}

// TestUnbind: a first step that failed leaves no webhook behind whose process may end.
func TestUnbind(t *testing.T) {
	t.Parallel()
	named := metav1.ObjectMeta{Name: registration.Name}
	bound := fake.NewClientset(
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: named,
			Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "mutate.sa-controller-manager.webhook"}}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: named,
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "validate.sa-controller-manager.webhook"}}})
	c := Config{Client: bound}
	if err := c.unbind(t.Context()); err == nil || !strings.Contains(err.Error(), "is unregistered again") {
		t.Errorf("got %v, want what was done", err)
	}
	testutil.Must(t, registration.IsInactive(t.Context(), bound))
	testutil.Must(t, (&Config{Client: fake.NewClientset()}).unbind(t.Context()))
}

// TestUnrestricted: the policy goes with the last kube-apiserver that has no plugin.
func TestUnrestricted(t *testing.T) {
	t.Parallel()
	server := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: "kube-apiserver-m", Labels: map[string]string{"component": component.APIServer},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Command: []string{"kube-apiserver", "--disable-admission-plugins=ServiceAccount"}}}},
	}
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: podpolicy.Name}}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: podpolicy.Name}}
	c := Config{Client: fake.NewClientset(server, policy, binding)}
	testutil.Must(t, c.unrestricted(t.Context()))
	policies := c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	if _, err := policies.Get(t.Context(), podpolicy.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("while another kube-apiserver has no plugin: %v", err)
	}
	testutil.Must(t, c.Client.CoreV1().Pods(metav1.NamespaceSystem).Delete(t.Context(), server.Name, metav1.DeleteOptions{}))
	testutil.Must(t, c.unrestricted(t.Context()))
	if problem, err := podpolicy.Problem(t.Context(), c.Client); err != nil || !strings.Contains(problem, "no ValidatingAdmissionPolicy ") {
		t.Errorf("afterwards the problem is %q, %v", problem, err)
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/internal/testutil/staticpodtest"
	"sa-controller-manager/manifests/component"
)

// TestCheckPlugin: kube-apiserver's plugin goes only if our process does its work.
func TestCheckPlugin(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		args     []string
		want     string // part of the error, "" for none
		ordinary bool
	}{
		"Default": {ordinary: true},
		"Secret":  {args: []string{"--pod-token=secret"}},
		"Limits":  {args: []string{"--limit-secret-references=true"}},
		"Ignore":  {args: []string{"--webhook-failure-policy=Ignore"}, want: "--webhook-failure-policy=Ignore"},
		"NoPort":  {args: []string{"--webhook-port=0"}, want: "it serves no webhook"},
		"Unknown": {args: []string{"--of-another-version"}, ordinary: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newControlPlane(t, "v1.37")
			ordinary, err := p.config.checkPlugin(append([]string{theKey}, tc.args...))
			wantError(t, name, err, p.located(tc.want))
			testutil.Expect(t, ordinary == tc.ordinary, "ordinary: %t, want %t", ordinary, tc.ordinary)
		})
	}
	p := newControlPlane(t, "v1.37")
	p.write(t, ownFile, staticpodtest.Own([]string{theKey, "--webhook-failure-policy=Ignore", "--webhook-registration=static"}))
	p.refuses(t, "a takeover", Takeover, "--webhook-failure-policy=Ignore")
}

// TestUnrestricted: the policy goes with the last kube-apiserver that has no plugin.
func TestUnrestricted(t *testing.T) {
	t.Parallel()
	server := mirror(component.APIServer, "m", true, pluginOff)
	objects := slices.Concat([]runtime.Object{server}, clitest.Policy(podpolicy.Refusal), clitest.Policy(podpolicy.Completion))
	c := Config{Client: fake.NewClientset(objects...)}
	testutil.Must(t, c.unrestricted(t.Context()))
	policies := c.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	_, err := policies.Get(t.Context(), podpolicy.Name, metav1.GetOptions{})
	testutil.Expect(t, err == nil, "while another kube-apiserver has no plugin: %v", err)
	testutil.Must(t, c.Client.CoreV1().Pods(metav1.NamespaceSystem).Delete(t.Context(), server.Name, metav1.DeleteOptions{}))
	testutil.Must(t, c.unrestricted(t.Context()))
	for _, policy := range []podpolicy.Policy{podpolicy.Refusal, podpolicy.Completion} {
		exists, problem, err := policy.Problem(t.Context(), c.Client)
		testutil.Expect(t, err == nil && !exists, "afterwards the problem is %q, %v", problem, err)
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/admission"
	"sa-controller-manager/admission/plugins"
	"sa-controller-manager/internal/testutil"
)

func TestAlwaysRules(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, config string
		want           []string
		refusal        string
	}{
		"none": {reason: "Pods", want: []string{"* pods"}},
		"one": {
			reason: "operations left out are all of them", config: "rules: [{group: apps, resource: deployments}]",
			want: []string{"* deployments.apps"},
		},
		"any of several": {
			reason: "kube-apiserver takes the star alone", config: "rules: [{resource: pods, operations: [CREATE, '*']}]", want: []string{"* pods"},
		},
		"operations": {
			reason: "kept", config: `{"rules":[{"resource":"pods","subResource":"exec","operations":["CONNECT"]}]}`,
			want: []string{"CONNECT pods/exec"},
		},
		"empty": {
			reason: "a plugin that matches nothing is a mistake", config: "rules: []",
			refusal: "rules are empty; leave the configuration out to match pods",
		},
		"no resource": {reason: "the place is named", config: "rules: [{resource: pods}, {group: apps}]", refusal: "rules[1]: no resource"},
		"unknown operation": {
			reason: "named", config: "rules: [{resource: pods, operations: [create]}]",
			refusal: `rules[0]: operation "create" is not one of ["*" "CREATE" "UPDATE" "DELETE" "CONNECT"]`,
		},
		"unknown field": {reason: "strict", config: "rule: []", refusal: `unknown field "rule"`},
	}
	for name, tc := range cases {
		for _, factory := range []admission.Factory{plugins.NewAlwaysAdmit, plugins.NewAlwaysDeny} {
			t.Run(name, func(t *testing.T) {
				var config io.Reader
				if tc.config != "" {
					config = strings.NewReader(tc.config)
				}
				plugin, err := factory(config)
				if tc.refusal != "" {
					if !strings.Contains(text(err), tc.refusal) {
						t.Errorf("%s: got %v, want %q", tc.reason, err, tc.refusal)
					}
					return
				}
				if err != nil {
					t.Fatalf("%s: %v", tc.reason, err)
				}
				var got []string
				for _, rule := range plugin.Rules() {
					got = append(got, rule.String())
				}
				testutil.Check(t, tc.reason, tc.want, got)
			})
		}
	}
}

func TestAlwaysAdmitAndAlwaysDeny(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		factory admission.Factory
		want    string
	}{
		plugins.AlwaysAdmit: {factory: plugins.NewAlwaysAdmit},
		plugins.AlwaysDeny:  {factory: plugins.NewAlwaysDeny, want: `pods "web" is forbidden: admission control is denying all modifications`},
	} {
		plugin, err := tc.factory(nil)
		testutil.Must(t, err)
		for _, operation := range []admission.Operation{admission.Create, admission.Update, admission.Delete} {
			if got := text(decide(t, plugin, request(operation, nil))); got != tc.want {
				t.Errorf("%s: %s: got %q, want %q", name, operation, got, tc.want)
			}
		}
		elsewhere := request(admission.Create, func(r *admission.Request) { r.Resource.Resource = "services" })
		if err := decide(t, plugin, elsewhere); err != nil {
			t.Errorf("%s: a Service is refused: %v", name, err)
		}
		if err := plugin.(admission.Validator).Validate(t.Context(), request(admission.Create, nil), nil); text(err) != tc.want {
			t.Errorf("%s: validation says %v, want %q", name, err, tc.want)
		}
	}
}

func TestDenyEscalatingExec(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	privileged := &corev1.SecurityContext{Privileged: &yes}
	cases := map[string]struct {
		reason string
		spec   corev1.PodSpec
		want   string
	}{
		"plain": {reason: "nothing to gain"},
		"not privileged": {
			reason: "said so", spec: corev1.PodSpec{Containers: []corev1.Container{{SecurityContext: &corev1.SecurityContext{Privileged: &no}}}},
		},
		"host network": {reason: "Kubernetes did not mind", spec: corev1.PodSpec{HostNetwork: true}},
		"host pid":     {reason: "sees the node", spec: corev1.PodSpec{HostPID: true}, want: "using host pid"},
		"host ipc":     {reason: "sees the node", spec: corev1.PodSpec{HostIPC: true}, want: "using host ipc"},
		"privileged": {
			reason: "is the node", spec: corev1.PodSpec{Containers: []corev1.Container{{}, {SecurityContext: privileged}}},
			want: "a privileged container",
		},
		"privileged init": {
			reason: "while it runs", spec: corev1.PodSpec{InitContainers: []corev1.Container{{SecurityContext: privileged}}},
			want: "a privileged container",
		},
		"privileged ephemeral": {
			reason: "kubectl debug",
			spec: corev1.PodSpec{
				EphemeralContainers: []corev1.EphemeralContainer{
					{EphemeralContainerCommon: corev1.EphemeralContainerCommon{SecurityContext: privileged}},
				},
			},
			want: "a privileged container",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}, Spec: tc.spec})
			plugin, err := plugins.NewDenyEscalatingExec(client.CoreV1())(nil)
			testutil.Must(t, err)
			want := ""
			if tc.want != "" {
				want = `pods "web" is forbidden: cannot exec into or attach to a container ` + tc.want
				want = strings.Replace(want, "a container a privileged", "a privileged", 1)
			}
			for _, sub := range []string{"exec", "attach"} {
				if got := text(decide(t, plugin, request(admission.Connect, func(r *admission.Request) { r.SubResource = sub }))); got != want {
					t.Errorf("%s: %s: got %q, want %q", tc.reason, sub, got, want)
				}
			}
			if err := decide(t, plugin, request(admission.Connect, func(r *admission.Request) { r.SubResource = "portforward" })); err != nil {
				t.Errorf("%s: port forwarding is refused: %v", tc.reason, err)
			}
		})
	}
	plugin, err := plugins.NewDenyEscalatingExec(fake.NewClientset().CoreV1())(nil)
	testutil.Must(t, err)
	unknown := decide(t, plugin, request(admission.Connect, func(r *admission.Request) { r.SubResource = "exec" }))
	if got, want := text(unknown), `pods "web" is forbidden: pods "web" not found`; got != want {
		t.Errorf("a Pod that cannot be looked at: got %q, want %q", got, want)
	}
}

func TestSecurityContextDeny(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, spec, want string
	}{
		"plain": {
			reason: "nothing chosen",
			spec:   `{"containers":[{"name":"a","securityContext":{"readOnlyRootFilesystem":true}}],"securityContext":{"runAsNonRoot":true}}`,
		},
		"supplemental groups": {
			reason: "of the Pod", spec: `{"securityContext":{"supplementalGroups":[1]}}`,
			want: `pods "web" is forbidden: pod.Spec.SecurityContext.SupplementalGroups is forbidden`,
		},
		"selinux": {
			reason: "of the Pod", spec: `{"securityContext":{"seLinuxOptions":{}}}`,
			want: `pods "web" is forbidden: pod.Spec.SecurityContext.SELinuxOptions is forbidden`,
		},
		"user": {
			reason: "of the Pod", spec: `{"securityContext":{"runAsUser":0}}`,
			want: `pods "web" is forbidden: pod.Spec.SecurityContext.RunAsUser is forbidden`,
		},
		"fs group": {
			reason: "of the Pod", spec: `{"securityContext":{"fsGroup":1}}`,
			want: `pods "web" is forbidden: pod.Spec.SecurityContext.FSGroup is forbidden`,
		},
		"container's user": {
			reason: "of the second", spec: `{"containers":[{},{"securityContext":{"runAsUser":0}}]}`,
			want: `pods "web" is forbidden: SecurityContext.RunAsUser is forbidden`,
		},
		"init's selinux": {
			reason: "init containers count", spec: `{"initContainers":[{"securityContext":{"seLinuxOptions":{"level":"s0"}}}]}`,
			want: `pods "web" is forbidden: SecurityContext.SELinuxOptions is forbidden`,
		},
		"ephemeral's user": {
			reason: "ephemeral containers count", spec: `{"ephemeralContainers":[{"securityContext":{"runAsUser":1}}]}`,
			want: `pods "web" is forbidden: SecurityContext.RunAsUser is forbidden`,
		},
		"not a Pod":  {reason: "what cannot be read is not let through", spec: `[]`, want: "read the pod: "},
		"wrong case": {reason: "the apiserver would not read it either", spec: `{"securitycontext":{"runAsUser":0}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			plugin, err := plugins.NewSecurityContextDeny(nil)
			testutil.Must(t, err)
			for operation, sub := range map[admission.Operation]string{admission.Create: "", admission.Update: "ephemeralcontainers"} {
				got := text(decide(t, plugin, request(operation, func(r *admission.Request) {
					r.SubResource, r.Object = sub, []byte(`{"spec":`+tc.spec+`}`)
				})))
				if !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
					t.Errorf("%s: %s: got %q, want %q", tc.reason, operation, got, tc.want)
				}
			}
		})
	}
}

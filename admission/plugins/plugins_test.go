// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/admission"
	"sa-controller-manager/admission/plugins"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m) }

// request is one for a Pod named web in namespace ns, as far as not said otherwise.
func request(operation admission.Operation, change func(*admission.Request)) *admission.Request {
	r := &admission.Request{
		Kind:      metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource:  metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Namespace: "ns",
		Name:      "web",
		Operation: operation,
	}
	if change != nil {
		change(r)
	}
	return r
}

// decide sends r through a chain with just the plugin: first mutation, then validation,
// as the apiserver does.
func decide(t *testing.T, plugin admission.Plugin, r *admission.Request) error {
	t.Helper()
	chain := admission.Chain{{Name: "plugin", Plugin: plugin}}
	if err := chain.Admit(t.Context(), r, &admission.Response{}); err != nil {
		return err
	}
	return chain.Validate(t.Context(), r, &admission.Response{})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

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
				testutil.CheckError(t, tc.reason, tc.refusal, err)
				if err != nil {
					return
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
			testutil.Check(t, name+": "+string(operation), tc.want, text(decide(t, plugin, request(operation, nil))))
		}
		elsewhere := request(admission.Create, func(r *admission.Request) { r.Resource.Resource = "services" })
		testutil.CheckError(t, name+": a Service is refused", "", decide(t, plugin, elsewhere))
		err = plugin.(admission.Validator).Validate(t.Context(), request(admission.Create, nil), nil)
		testutil.Check(t, name+": validation", tc.want, text(err))
	}
}

func TestDenyEscalatingExec(t *testing.T) {
	t.Parallel()
	privileged, not := &corev1.SecurityContext{Privileged: new(true)}, &corev1.SecurityContext{Privileged: new(false)}
	cases := map[string]struct {
		reason string
		spec   corev1.PodSpec
		want   string
	}{
		"not privileged": {reason: "said so", spec: corev1.PodSpec{Containers: []corev1.Container{{SecurityContext: not}}}},
		"host network":   {reason: "Kubernetes did not mind", spec: corev1.PodSpec{HostNetwork: true}},
		"host pid":       {reason: "sees the node", spec: corev1.PodSpec{HostPID: true}, want: "container using host pid"},
		"host ipc":       {reason: "sees the node", spec: corev1.PodSpec{HostIPC: true}, want: "container using host ipc"},
		"privileged": {
			reason: "is the node", spec: corev1.PodSpec{Containers: []corev1.Container{{}, {SecurityContext: privileged}}},
			want: "privileged container",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}, Spec: tc.spec})
			plugin, err := plugins.NewDenyEscalatingExec(client.CoreV1())(nil)
			testutil.Must(t, err)
			want := ""
			if tc.want != "" {
				want = `pods "web" is forbidden: cannot exec into or attach to a ` + tc.want
			}
			for _, sub := range []string{"exec", "attach"} {
				connect := request(admission.Connect, func(r *admission.Request) { r.SubResource = sub })
				testutil.Check(t, tc.reason+": "+sub, want, text(decide(t, plugin, connect)))
			}
			forward := request(admission.Connect, func(r *admission.Request) { r.SubResource = "portforward" })
			testutil.CheckError(t, tc.reason+": port forwarding", "", decide(t, plugin, forward))
		})
	}
	plugin, err := plugins.NewDenyEscalatingExec(fake.NewClientset().CoreV1())(nil)
	testutil.Must(t, err)
	unknown := decide(t, plugin, request(admission.Connect, func(r *admission.Request) { r.SubResource = "exec" }))
	testutil.Check(t, "a Pod that cannot be looked at", `pods "web" is forbidden: pods "web" not found`, text(unknown))
}

func TestSecurityContextDeny(t *testing.T) {
	t.Parallel()
	// What is forbidden, nothing if empty.
	for spec, want := range map[string]string{
		`{"containers":[{"name":"a","securityContext":{"readOnlyRootFilesystem":true}}],"securityContext":{"runAsNonRoot":true}}`: "",

		`{"securityContext":{"supplementalGroups":[1]}}`:                        "pod.Spec.SecurityContext.SupplementalGroups",
		`{"securityContext":{"seLinuxOptions":{}}}`:                             "pod.Spec.SecurityContext.SELinuxOptions",
		`{"securityContext":{"runAsUser":0}}`:                                   "pod.Spec.SecurityContext.RunAsUser",
		`{"securityContext":{"fsGroup":1}}`:                                     "pod.Spec.SecurityContext.FSGroup",
		`{"containers":[{},{"securityContext":{"runAsUser":0}}]}`:               "SecurityContext.RunAsUser",
		`{"initContainers":[{"securityContext":{"seLinuxOptions":{"a":"b"}}}]}`: "SecurityContext.SELinuxOptions",
		`{"ephemeralContainers":[{"securityContext":{"runAsUser":1}}]}`:         "SecurityContext.RunAsUser",
		`{"securitycontext":{"runAsUser":0}}`:                                   "", // the apiserver would not read it either
	} {
		if want != "" {
			want = `pods "web" is forbidden: ` + want + " is forbidden"
		}
		for operation, sub := range map[admission.Operation]string{admission.Create: "", admission.Update: "ephemeralcontainers"} {
			testutil.Check(t, string(operation)+" "+spec, want, text(deniesContext(t, operation, sub, spec)))
		}
	}
	trial, err := json.Marshal(registration.TrialPod().Spec)
	testutil.Must(t, err)
	testutil.CheckError(t, "the Pod of a proof", "", deniesContext(t, admission.Create, "", string(trial)))
	// What cannot be read is not let through.
	testutil.CheckError(t, "not a Pod", "read the pod: ", deniesContext(t, admission.Create, "", "[]"))
}

func deniesContext(t *testing.T, operation admission.Operation, sub, spec string) error {
	t.Helper()
	plugin, err := plugins.NewSecurityContextDeny(nil)
	testutil.Must(t, err)
	return decide(t, plugin, request(operation, func(r *admission.Request) { r.SubResource, r.Object = sub, []byte(`{"spec":`+spec+`}`) }))
}

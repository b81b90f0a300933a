// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	stdcmp "cmp"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/internal/testutil/staticpodtest"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/staticpod"
)

const admissionHead = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"

// TestAdmissionConfig is what becomes of the operator's file.
func TestAdmissionConfig(t *testing.T) {
	t.Parallel()
	const (
		directory = "/etc/kubernetes/sa-controller-manager/static/"
		webhook   = "    apiVersion: apiserver.config.k8s.io/v1\n    kind: WebhookAdmissionConfiguration\n"
		mutating  = "- name: MutatingAdmissionWebhook\n  path: \"\"\n  configuration:\n" + webhook
		ours      = mutating + "    staticManifestsDir: " + directory + "mutating\n"
		theirs    = mutating + "    kubeConfigFile: /etc/kubernetes/pki/webhooks.conf\n    staticManifestsDir: " + directory + "mutating\n"
		second    = "- name: ValidatingAdmissionWebhook\n  path: \"\"\n  configuration:\n" + webhook +
			"    staticManifestsDir: " + directory + "validating\n" +
			// With another field kube-apiserver would not start.
			"- name: MutatingAdmissionPolicy\n  path: \"\"\n  configuration:\n    apiVersion: apiserver.config.k8s.io/v1\n" +
			"    kind: MutatingAdmissionPolicyConfiguration\n    staticManifestsDir: " + directory + "policies\n"
		limits = "- name: EventRateLimit\n  path: /etc/kubernetes/pki/limits.yaml\n  configuration: null\n"
	)
	for name, tc := range map[string]struct {
		reason       string
		flag         string // --admission-control-config-file, if it is another
		source, want string
		refused      string
	}{
		"RelativePath": {
			reason: "relative to the file that it is in", source: "- name: EventRateLimit\n  path: limits.yaml\n", want: limits + ours +
				second,
		},
		"Inline": {
			reason: "another plugin's configuration stays", source: "- name: X\n  configuration: {a: 1, b: [true]}\n",
			want: "- name: X\n  path: \"\"\n  configuration:\n    a: 1\n    b: [true]\n" + ours + second,
		},
		"OwnEntry": {
			reason: "it is kept", source: mutating + "    kubeConfigFile: /etc/kubernetes/pki/webhooks.conf\n", want: theirs + second,
		},
		"OwnFile": {
			reason: "a file has no other place for ours", source: "- name: MutatingAdmissionWebhook\n  path: own.yaml\n", want: theirs +
				second,
		},
		"HasOne": {
			reason: "there is one directory", source: mutating + "    staticManifestsDir: /etc/theirs\n",
			refused: "plugin MutatingAdmissionWebhook: it has staticManifestsDir: /etc/theirs already",
		},
		"HasPolicies": {
			reason:  "there is one directory",
			source:  "- name: MutatingAdmissionPolicy\n  configuration: {staticManifestsDir: /etc/theirs}\n",
			refused: "plugin MutatingAdmissionPolicy: it has staticManifestsDir: /etc/theirs already",
		},
		"UnknownName": {reason: "kube-apiserver would not start", source: "- nam: X\n", refused: `unknown field "nam"`},
		"NotSeen":     {flag: "/etc/admission.yaml", refused: "/etc/admission.yaml is in none of its volumeMounts"},
		"NotThere":    {flag: "/etc/kubernetes/pki/none.yaml", refused: "/etc/kubernetes/pki/none.yaml: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			const file = "/etc/kubernetes/pki/admission.yaml"
			p := newControlPlane(t, "v1.37", "--admission-control-config-file="+stdcmp.Or(tc.flag, file))
			source := tc.source
			if strings.HasPrefix(source, "- ") {
				source = admissionHead + source
			}
			p.Write(t, "pki/admission.yaml", []byte(source))
			p.Write(t, "pki/own.yaml", []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: WebhookAdmissionConfiguration\n"+
				"kubeConfigFile: /etc/kubernetes/pki/webhooks.conf\n"))
			m := testutil.Get(staticpod.Parse(staticpodtest.Read(t, p.config.manifest(component.APIServer)), component.APIServer))(t)
			got, err := p.config.admissionConfig(m)
			wantError(t, tc.reason, err, tc.refused)
			if tc.refused != "" {
				return
			}
			testutil.Check(t, tc.reason, string(staticpodtest.JSON(t, []byte(admissionHead+tc.want))), string(staticpodtest.JSON(t, got)))
		})
	}
}

// TestChooseFiles is whether kube-apiserver reads our webhook from files.
func TestChooseFiles(t *testing.T) {
	t.Parallel()
	own := func(mode registration.Mode) []byte {
		return staticpodtest.Own([]string{"--webhook-registration=" + string(mode)})
	}
	for name, tc := range map[string]struct {
		reason  string
		image   string // v1.37.2 if it is empty
		own     []byte
		rewrite bool
		keep    bool
		want    bool
		note    string // the beginning
		refused string
	}{
		"v1.37":       {want: true},
		"v1.37, none": {keep: true, note: "kube-apiserver keeps its ServiceAccount plugin: our manifest registers no webhook"},
		"v1.36": {
			image: "v1.36.3", note: "kube-apiserver keeps its ServiceAccount plugin: it reads no webhook from files (v1.37 does).",
		},
		"again": {own: own(registration.Static), want: true},
		"again, none": {
			own: own(registration.None),
			note: "kube-apiserver keeps its ServiceAccount plugin: our manifest registers no webhook. --rewrite decides again, " +
				"with --reset if an --extra-arg has decided it.",
		},
		"rewritten, none": {own: own(registration.None), rewrite: true, want: true},
		"by URL": {
			reason: "a person has edited our manifest", own: own(registration.URL), rewrite: true,
			refused: "our manifest has --webhook-registration=url, and a takeover registers from files; first run: kubeadm handback",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37")
			p.config.KeepPlugin, p.config.Rewrite = tc.keep, tc.rewrite
			p.Change(t, component.APIServer, "kube-apiserver:v1.37.2", "kube-apiserver:"+stdcmp.Or(tc.image, "v1.37.2"))
			if tc.own != nil {
				p.Write(t, ownFile, tc.own)
			}
			o := testutil.Get(p.config.observe())(t)
			m := testutil.Get(o.apiServer().Parse())(t)
			var d desired
			err := p.config.chooseFiles(o, &d, m)
			wantError(t, tc.reason, err, tc.refused)
			testutil.Expect(t, err != nil || d.files == tc.want && strings.HasPrefix(d.note, tc.note) && (tc.note != "" || d.note == ""),
				"%s: got %t, %q, want %t, %q", tc.reason, d.files, d.note, tc.want, tc.note)
		})
	}
	p := newControlPlane(t, "v1.37")
	p.writeSteps(t, takeover, 3)
	p.config.KeepPlugin, p.config.Rewrite = true, true
	p.refuses(t, "it would lose what admits Pods", Run,
		"kube-apiserver reads our webhook from files, and would refuse Pods while that ends")
}

// TestSwitchedOff: our process is ready without files then.
func TestSwitchedOff(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	wantError(t, "on", p.config.switchedOff(t.Context()), "")
	p.Write(t, "sa-controller-manager/static/off", nil)
	wantError(t, "off", p.config.switchedOff(t.Context()),
		"sa-controller-manager webhook register --static-registration-dir=/etc/kubernetes/sa-controller-manager/static lets it in again")
	for _, step := range p.steps(t, takeover)[2:] {
		wantError(t, step.summary, p.config.await(t.Context(), step.proofs...), "switches the webhook off")
	}
	testutil.Must(t, p.config.deleteFiles(t.Context()))
	wantError(t, "after a handback", p.config.switchedOff(t.Context()), "")
}

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
			wantError(t, name, err, p.Located(tc.want))
			testutil.Expect(t, ordinary == tc.ordinary, "ordinary: %t, want %t", ordinary, tc.ordinary)
		})
	}
	p := newControlPlane(t, "v1.37")
	p.Write(t, ownFile, staticpodtest.Own([]string{theKey, "--webhook-failure-policy=Ignore", "--webhook-registration=static"}))
	p.refuses(t, "a takeover", Run, "--webhook-failure-policy=Ignore")
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

// TestEarlier: who changes Pods before our webhook is named before kube-apiserver loses its plugin.
func TestEarlier(t *testing.T) {
	t.Parallel()
	rule := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{"*"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
	}
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: rule}},
			},
		},
	}
	p := newControlPlane(t, "v1.37")
	p.config.Client = fake.NewClientset(policy)
	p.refuses(t, "dry run", Run, "pods \"kube-apiserver-n\" not found")
	want := "(docs/comparison.md): MutatingAdmissionPolicy theirs."
	testutil.Expect(t, strings.Contains(p.out.String(), want), "it does not print %q:\n%s", want, &p.out)
}

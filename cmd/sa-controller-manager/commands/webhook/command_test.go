// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"
)

// TestWebhookCommand: unregister lets Pods without an account in, too, and register ends that.
func TestWebhookCommand(t *testing.T) {
	t.Parallel()
	off := map[string]string{registration.Annotation: registration.AnnotationOff, "other": "stays"}
	for name, tc := range map[string]struct {
		reason, command string
		objects         []runtime.Object
		off             string // of both configurations
		webhooks        int
	}{
		"Unregister": {command: "unregister", objects: clitest.Configurations(nil, 1), off: registration.AnnotationOff},
		"UnregisterBeforeTheFirstStart": {
			reason: "the leader that starts next must find the annotation", command: "unregister", off: registration.AnnotationOff,
		},
		"Register":                 {reason: "the leader fills it", command: "register", objects: clitest.Configurations(off, 0)},
		"RegisterWhatIsRegistered": {command: "register", objects: clitest.Configurations(nil, 1), webhooks: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			binding, problem := clitest.RefusalBinding(admissionregistrationv1.Deny), "spec.validationActions is [Warn]"
			if tc.command == "register" {
				binding, problem = clitest.RefusalBinding(admissionregistrationv1.Warn), ""
			}
			client := fake.NewClientset(append(tc.objects, clitest.Refusal(), binding)...)
			answers(client, tc.command == "register", tc.command == "register", nil)
			if got := runWith(t, client, tc.command); got.Code != 0 || !strings.Contains(got.Stdout, registration.Name) {
				t.Errorf("%s\n%+v, want code 0 and what it has done", tc.reason, got)
			}
			_, got, err := podpolicy.Refusal.Problem(t.Context(), client)
			testutil.Expect(t, err == nil && (got == "") == (problem == "") && strings.Contains(got, problem),
				"%s\nthe problem with the policy is %q, %v; want %q", tc.reason, got, err, problem)
			api := client.AdmissionregistrationV1()
			mutating := testutil.Get(api.MutatingWebhookConfigurations().Get(t.Context(), registration.Name, metav1.GetOptions{}))(t)
			validating := testutil.Get(api.ValidatingWebhookConfigurations().Get(t.Context(), registration.Name, metav1.GetOptions{}))(t)
			configured := []any{
				mutating.Annotations[registration.Annotation], len(mutating.Webhooks), validating.Annotations[registration.Annotation],
				len(validating.Webhooks),
			}
			testutil.Check(t, tc.reason+"\nannotation and webhooks of both", []any{tc.off, tc.webhooks, tc.off, tc.webhooks}, configured)
		})
	}
}

// A command that claims to have taken a webhook out must have done so.
func TestWebhookCommandFails(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(clitest.Configurations(nil, 1)...)
	client.PrependReactor("update", "validatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("boom")
	})
	want := clitest.Outcome{Code: 1, Stderr: "Cluster:    demo https://a\n" +
		"Error: switch off the ValidatingWebhookConfiguration 00-sa-controller-manager: boom\n"}
	testutil.Check(t, "result", want, runWith(t, client, "unregister", "--yes"))
}

// TestRegisterNamesAWrongPolicy: what is registered again is not all that it takes.
func TestRegisterNamesAWrongPolicy(t *testing.T) {
	t.Parallel()
	completion := clitest.Policy(podpolicy.Completion)
	completion[0].(*admissionregistrationv1.MutatingAdmissionPolicy).Spec.MatchConditions = nil
	policy := clitest.Refusal()
	policy.Spec.MatchConstraints.ResourceRules = nil
	for name, tc := range map[string]struct {
		objects []runtime.Object
		want    string
	}{
		"completion": {
			completion, "MutatingAdmissionPolicy sa-controller-manager-completion is not that of this version: its spec.matchConditions is",
		},
		"refusal": {
			[]runtime.Object{policy, clitest.RefusalBinding(admissionregistrationv1.Deny)},
			"ValidatingAdmissionPolicy sa-controller-manager-pods is not that of this version: its spec.matchConstraints is",
		},
	} {
		client := fake.NewClientset(append(tc.objects, clitest.Configurations(nil, 1)...)...)
		answers(client, true, true, nil)
		got := runWith(t, client, "register")
		if got.Code != 1 || !strings.Contains(got.Stderr, "the webhook is registered again, but") ||
			!strings.Contains(got.Stderr, tc.want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestDryRun: nothing is asked and nothing proved, files stay, and the API server stores nothing.
func TestDryRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testutil.Must(t, os.WriteFile(registration.StaticOffPath(dir), nil, 0o600))
	testutil.Must(t, os.Mkdir(manifests.StaticDirs(dir)[0], 0o755))
	for _, step := range []struct {
		args []string
		want string
	}{
		{[]string{"unregister"}, "Without --dry-run: The webhook is off."},
		{[]string{"register"}, "Without --dry-run: The webhook is registered again"},
		{[]string{"register", "--static-registration-dir=" + dir}, "Without --dry-run: The process of this host writes"},
		{[]string{"unregister", "--static-registration-dir=" + dir + "/none"}, "no such file or directory"},
	} {
		client, dry := fake.NewClientset(clitest.Configurations(nil, 1)...), false
		got := clitest.Run(t, NewCommand(func(o *options.Connection) (kubernetes.Interface, error) {
			dry = o.DryRun
			return client, nil
		}, nil), append(step.args, "--dry-run")...)
		probed := slices.ContainsFunc(client.Actions(), func(a clienttesting.Action) bool { return a.GetResource().Resource == "pods" })
		testutil.Expect(t, strings.Contains(got.Stdout+got.Stderr, step.want) && dry == (len(step.args) == 1) && !probed,
			"%v: %+v, the client is dry: %t, a Pod was created: %t", step.args, got, dry, probed)
	}
	_, err := os.Stat(registration.StaticOffPath(dir))
	testutil.Expect(t, err == nil, "%v", err)
}

// TestUnregisterWhileFilesBind: the command does not say that the webhook is off, and names the way out.
func TestUnregisterWhileFilesBind(t *testing.T) {
	t.Parallel()
	refused := errors.New(`failed calling webhook "mutate.sa-controller-manager.webhook": connection refused`)
	for name, tc := range map[string]struct {
		err      error
		answered bool
		wantCode int
	}{
		"Answered":       {answered: true, wantCode: 1},
		"Refused":        {err: refused, wantCode: 1},
		"ByAnother":      {err: errors.New("exceeded quota")},
		"NotAnsweredNow": {},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			client := fake.NewClientset(append(clitest.Configurations(nil, 1), clitest.RefusalBinding(admissionregistrationv1.Deny))...)
			answers(client, tc.answered, tc.answered, tc.err)
			const way = "sa-controller-manager webhook unregister " +
				"--static-registration-dir=/etc/kubernetes/sa-controller-manager/static"
			got := runWith(t, client, "unregister")
			if got.Code != tc.wantCode || strings.Contains(got.Stderr, way) != (tc.wantCode == 1) ||
				strings.Contains(got.Stdout, "is off") != (tc.wantCode == 0) {
				t.Errorf("%+v, want code %d", got, tc.wantCode)
			}
			wantActions(t, client, map[int]string{0: "[Warn]", 1: "[Deny]"}[tc.wantCode])
		})
	}
}

// answers has kube-apiserver call the webhook for Pods, which names their account.
func answers(client *fake.Clientset, called, named bool, err error) {
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		pod := action.(clienttesting.CreateAction).GetObject().(*corev1.Pod).DeepCopy()
		if id, probe := pod.Annotations["sa-controller-manager/probe"]; called && probe {
			pod.Annotations["sa-controller-manager/probe-answer"] = id
		}
		if named {
			pod.Spec.ServiceAccountName = "default"
		}
		return true, pod, err
	})
}

func wantActions(t *testing.T, client kubernetes.Interface, want string) {
	t.Helper()
	binding, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Get(t.Context(), podpolicy.Name,
		metav1.GetOptions{})
	testutil.Must(t, err)
	testutil.Check(t, "actions of the policy", want, fmt.Sprint(binding.Spec.ValidationActions))
}

// TestRegisterWaits: the policy for Pods refuses Pods again once the webhook gives them what they need, and not before.
func TestRegisterWaits(t *testing.T) {
	t.Parallel()
	off := map[string]string{registration.Annotation: registration.AnnotationOff}
	staged := clitest.Configurations(nil, 1)
	staged[0].(*admissionregistrationv1.MutatingWebhookConfiguration).Webhooks[0].Name = "probe.sa-controller-manager.webhook"
	for name, tc := range map[string]struct {
		reason        string
		objects       []runtime.Object
		called, named bool
		want          string // the reason on standard error, "" for success
	}{
		"Called": {reason: "by files, say", objects: clitest.Configurations(off, 0), called: true, named: true},
		"NotCalled": {reason: "no leader", objects: clitest.Configurations(off, 0), named: true,
			want: "admits Pods without calling the registered webhook"},
		"NotBound": {reason: "only the probe is", objects: staged, called: true, named: true,
			want: "the webhook is not registered, and is to be"},
		"NoAccounts": {reason: "another webhook takes it away", objects: clitest.Configurations(off, 0), called: true,
			want: "a new Pod gets no account, although kube-apiserver calls the webhook"},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			binding := clitest.RefusalBinding(admissionregistrationv1.Warn)
			binding.Spec.ValidationActions = append(binding.Spec.ValidationActions, admissionregistrationv1.Audit)
			client := fake.NewClientset(append(tc.objects, clitest.Refusal(), binding)...)
			answers(client, tc.called, tc.named, nil)
			got := runWith(t, client, "register")
			testutil.Expect(t, (got.Code == 0) == (tc.want == "") && strings.Contains(got.Stderr, tc.want), "%s: %+v, want %q",
				tc.reason, got,
				tc.want)
			wantActions(t, client, map[int]string{0: "[Deny Audit]", 1: "[Warn Audit]"}[got.Code])
		})
	}
}

// TestUnregisterOnAHost needs no API.
func TestUnregisterOnAHost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, path := range registration.StaticPaths(dir) {
		testutil.Must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		testutil.Must(t, os.WriteFile(path, []byte("x"), 0o600))
	}
	alone := func(command string) clitest.Outcome {
		return clitest.Run(t, NewCommand(func(*options.Connection) (kubernetes.Interface, error) { return nil, errors.New("no API") }, nil),
			command, "--static-registration-dir="+dir)
	}
	if got := alone("unregister"); got.Code != 0 || !strings.Contains(got.Stdout, "off on this host") ||
		!strings.Contains(got.Stdout, "still refuses Pods without an account") {
		t.Errorf("unregister: %+v", got)
	}
	for _, path := range registration.StaticPaths(dir) {
		_, err := os.Stat(path)
		testutil.Expect(t, os.IsNotExist(err), "%s is there, or %v", path, err)
	}
	_, err := os.Stat(registration.StaticOffPath(dir))
	testutil.Expect(t, err == nil, "%v", err)
	got := alone("register")
	testutil.Expect(t, got.Code == 0 && strings.Contains(got.Stdout, "webhook register without that flag"), "register: %+v", got)
	if _, err := os.Stat(registration.StaticOffPath(dir)); !os.IsNotExist(err) {
		t.Errorf("it is still off, or %v", err)
	}
	for _, wrong := range []string{dir + "/none", dir + "/mutating", t.TempDir()} {
		for _, command := range []string{"register", "unregister"} {
			got := clitest.Run(t, NewCommand(cli.Connect, nil), command, "--static-registration-dir="+wrong)
			testutil.Expect(t, got.Code == 1 && strings.Contains(got.Stderr, wrong+"/mutating/sa-controller-manager.yaml"),
				"%s in the wrong directory: %+v", command, got)
			_, err := os.Stat(registration.StaticOffPath(wrong))
			testutil.Expect(t, os.IsNotExist(err), "%s has written into the wrong directory, or %v", command, err)
		}
	}
}

// runWith runs a sub-command on a cluster.
func runWith(t *testing.T, client kubernetes.Interface, args ...string) clitest.Outcome {
	t.Helper()
	return clitest.Run(t, NewCommand(func(o *options.Connection) (kubernetes.Interface, error) {
		o.Cluster = "demo https://a"
		return client, nil
	}, nil), args...)
}

// TestUnlessPluginOff: an uninstallation changes nothing while kube-apiserver's plugin is off, unless the
// webhook is off already.
func TestUnlessPluginOff(t *testing.T) {
	t.Parallel()
	off := map[string]string{registration.Annotation: registration.AnnotationOff}
	for name, tc := range map[string]struct {
		objects []runtime.Object
		plugin  bool
		user    string
		want    string // part of the error, "" for none
	}{
		"On": {objects: clitest.Configurations(nil, 1), plugin: true, user: "system:serviceaccount:ours:manager"},
		"Off": {
			objects: clitest.Configurations(nil, 1), user: "system:serviceaccount:ours:manager", want: "webhook unregister --yes",
		},
		"AlreadyOff": {objects: clitest.Configurations(off, 0), user: "system:serviceaccount:ours:manager"},
		"OtherUser":  {objects: clitest.Configurations(nil, 1), user: "admin", want: "is for the ServiceAccount of the manager"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset(tc.objects...)
			client.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{
					UserInfo: authenticationv1.UserInfo{Username: tc.user},
				}}, nil
			})
			client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				pod := action.(clienttesting.CreateAction).GetObject().(*corev1.Pod)
				if tc.plugin && pod.Spec.ServiceAccountName == "manager" && action.GetNamespace() == "ours" {
					pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}}
				}
				return true, pod, nil
			})
			got := runWith(t, client, "unregister", "--yes", "--if-plugin-on")
			testutil.Expect(t, (got.Code == 0) == (tc.want == "") && strings.Contains(got.Stderr, tc.want), "%+v, want %q", got, tc.want)
			active := registration.IsInactive(t.Context(), client) != nil
			testutil.Expect(t, active == (tc.want != ""), "the webhook is bound: %t", active)
		})
	}
}

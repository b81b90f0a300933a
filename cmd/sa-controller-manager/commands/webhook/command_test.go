// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"errors"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
)

// registered is what one configuration holds.
type registered struct {
	Exists   bool
	Off      string
	Webhooks int
}

func TestWebhookCommand(t *testing.T) {
	t.Parallel()
	off := map[string]string{registration.Annotation: registration.AnnotationOff, "other": "stays"}
	cases := map[string]struct {
		reason     string
		command    string
		objects    []runtime.Object
		mutating   registered
		validating registered
	}{
		"Unregister": {
			command:    "unregister",
			objects:    configurations(nil, 1),
			mutating:   registered{true, registration.AnnotationOff, 0},
			validating: registered{true, registration.AnnotationOff, 0},
		},
		"UnregisterBeforeTheFirstStart": {
			reason:     "the leader that starts next must find the annotation",
			command:    "unregister",
			mutating:   registered{true, registration.AnnotationOff, 0},
			validating: registered{true, registration.AnnotationOff, 0},
		},
		"Register": {
			reason:     "who fills it is the leader",
			command:    "register",
			objects:    configurations(off, 0),
			mutating:   registered{true, "", 0},
			validating: registered{true, "", 0},
		},
		"RegisterWhatIsRegistered": {
			command:    "register",
			objects:    configurations(nil, 1),
			mutating:   registered{true, "", 1},
			validating: registered{true, "", 1},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset(tc.objects...)
			stdout, err := runWebhook(t, client, tc.command)
			if err != nil {
				t.Fatalf("%s\n%v", tc.reason, err)
			}
			if !strings.Contains(stdout, registration.Name) {
				t.Errorf("it does not say what it has done: %q", stdout)
			}
			mutating, validating := registeredNow(t, client)
			if diff := cmp.Diff(tc.mutating, mutating); diff != "" {
				t.Errorf("%s\nmutating (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.validating, validating); diff != "" {
				t.Errorf("%s\nvalidating (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// A command that claims to have taken a webhook out must have done so.
func TestWebhookCommandFails(t *testing.T) {
	t.Parallel()
	const want = "switch off the ValidatingWebhookConfiguration 00-sa-controller-manager: "
	for name, failure := range map[string]error{
		"Error":   errors.New("boom"),
		"Timeout": &url.Error{Op: "Put", URL: "https://apiserver", Err: context.DeadlineExceeded},
		"Ctrl-C":  &url.Error{Op: "Put", URL: "https://apiserver", Err: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset(configurations(nil, 1)...)
			client.PrependReactor("update", "validatingwebhookconfigurations", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, failure
			})
			stdout, err := runWebhook(t, client, "unregister")
			if err == nil || err.Error() != want+failure.Error() || stdout != "" {
				t.Errorf("error %v and output %q, want %q and none", err, stdout, want+failure.Error())
			}
		})
	}
}

func TestWebhookCommandLine(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		args       []string
		wantCode   int
		wantStdout string // the beginning
		wantStderr string // the beginning
	}{
		"Alone": {wantStdout: "Switch the admission webhook of a cluster off"},
		"Help":  {args: []string{"unregister", "--help"}, wantStdout: "Empty both webhook configurations"},
		"Mistyped": {
			args: []string{"unregster"}, wantCode: 1,
			wantStderr: "Error: unknown command \"unregster\" for \"sa-controller-manager webhook\"; did you mean 'sa-controller-manager webhook unregister'",
		},
		"NoConnection": {
			args: []string{"register", "--kubeconfig=testdata/none"}, wantCode: 1,
			wantStderr: "Error: --kubeconfig \"testdata/none\": ",
		},
		"FlagOfTheManager": {
			args: []string{"register", "--webhook-port=1"}, wantCode: 1,
			wantStderr: "Error: unknown flag: --webhook-port\nSee 'sa-controller-manager webhook register --help' for usage.\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := clitest.Run(t, NewCommand(cli.Connect), tc.args...)
			if got.Code != tc.wantCode || !strings.HasPrefix(got.Stdout, tc.wantStdout) || !strings.HasPrefix(got.Stderr, tc.wantStderr) {
				t.Errorf("%+v, want code %d, %q and %q at first", got, tc.wantCode, tc.wantStdout, tc.wantStderr)
			}
		})
	}
}

// The help must work in an emergency, with and without kubectl.
func TestWebhookHelpHasTheWayOfKubectl(t *testing.T) {
	t.Parallel()
	help := clitest.Run(t, NewCommand(cli.Connect), "--help").Stdout
	for _, want := range []string{"kubectl patch", "kubectl annotate", registration.Annotation, registration.Name, "webhook unregister"} {
		if !strings.Contains(help, want) {
			t.Errorf("the help lacks %q:\n%s", want, help)
		}
	}
}

// The user of a pasted command is not in a Pod, so it needs a kubeconfig.
func TestWebhookHelpCanBePasted(t *testing.T) {
	t.Parallel()
	found := 0
	for line := range strings.Lines(description) {
		if !strings.HasPrefix(line, "  "+options.ProgramName+" ") {
			continue
		}
		found++
		if !strings.Contains(line, " --kubeconfig=") {
			t.Errorf("%q does not say which cluster", line)
		}
	}
	if found != 2 {
		t.Errorf("%d commands, want 2", found)
	}
}

func runWebhook(t *testing.T, client kubernetes.Interface, args ...string) (string, error) {
	t.Helper()
	var stdout bytes.Buffer
	cmd := NewCommand(func(*options.Connection) (kubernetes.Interface, error) { return client, nil })
	cmd.SetArgs(args)
	cmd.SetOut(&stdout)
	cmd.SetErr(os.Stderr)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	err := cmd.ExecuteContext(t.Context())
	return stdout.String(), err
}

func configurations(annotations map[string]string, webhooks int) []runtime.Object {
	meta := metav1.ObjectMeta{Name: registration.Name, Annotations: annotations}
	return []runtime.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: *meta.DeepCopy(), Webhooks: make([]admissionregistrationv1.MutatingWebhook, webhooks)},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: *meta.DeepCopy(), Webhooks: make([]admissionregistrationv1.ValidatingWebhook, webhooks)},
	}
}

func registeredNow(t *testing.T, client kubernetes.Interface) (mutating, validating registered) {
	t.Helper()
	api := client.AdmissionregistrationV1()
	m, err := api.MutatingWebhookConfigurations().Get(t.Context(), registration.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := api.ValidatingWebhookConfigurations().Get(t.Context(), registration.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return registered{true, m.Annotations[registration.Annotation], len(m.Webhooks)},
		registered{true, v.Annotations[registration.Annotation], len(v.Webhooks)}
}

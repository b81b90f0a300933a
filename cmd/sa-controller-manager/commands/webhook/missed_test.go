// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
)

// missedWorld has a Pod without anything, one without a token, one about which that is
// uncertain, and one that lacks nothing.
func missedWorld() []runtime.Object {
	now := metav1.Now()
	pod := func(namespace, name, account string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(now.Add(-90 * time.Minute))},
			Spec:       corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "main"}}},
		}
	}
	old := metav1.ObjectMeta{Namespace: "shop", Name: "old"}
	changed := metav1.ObjectMeta{Namespace: "shop", Name: "changed", ManagedFields: []metav1.ManagedFieldsEntry{{
		Manager: "kubectl", Time: &now, FieldsV1: metav1.NewFieldsV1(`{"f:automountServiceAccountToken":{}}`),
	}}}
	bare, running := pod("bank", "bare", ""), pod("shop", "running", "old")
	bare.Spec.NodeName = "node-1"
	running.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", Controller: new(true)}}
	none := pod("shop", "none", "old")
	none.Spec.AutomountServiceAccountToken = new(false)
	return []runtime.Object{
		&corev1.ServiceAccount{ObjectMeta: old}, &corev1.ServiceAccount{ObjectMeta: changed},
		bare, running, pod("shop", "unsure", "changed"), none,
	}
}

func TestMissedCommand(t *testing.T) {
	t.Parallel()
	const uncertain = " 1 more are uncertain, because their account was changed after they were created."
	cases := map[string]struct {
		args       []string
		objects    []runtime.Object
		wantCode   int
		wantStdout string
		wantStderr string
	}{
		"None": {wantStderr: "None of 0 Pods was admitted without the webhook.\n"},
		"NoneAsJSON": {
			args: []string{"-o=json"},
			wantStdout: "{\n  \"apiVersion\": \"sa-controller-manager/v1\",\n  \"kind\": \"MissedPods\",\n  \"missed\": " +
				"[],\n  \"uncertain\": []\n}\n",
			wantStderr: "None of 0 Pods was admitted without the webhook.\n",
		},
		"Table": {
			objects: missedWorld(), args: []string{"-A", "--kubeconfig=admin.conf"}, wantCode: 2,
			wantStdout: `
NAMESPACE   POD       OWNER            NODE     AGE   MISSING
bank        bare      <none>           node-1   90m   account
shop        running   ReplicaSet/web   <none>   90m   token
shop        unsure    <none>           <none>   90m   token (uncertain)

To have their controllers create them again:
kubectl delete pod running -n shop --kubeconfig=admin.conf

Pods that no known controller creates again:
bank/bare: no controller owns it: delete it and create it yourself
`,
			wantStderr: "2 of 4 Pods were admitted without the webhook." + uncertain + "\n",
		},
		"Namespace": {
			objects: missedWorld(), args: []string{"-n=bank"}, wantCode: 2,
			wantStdout: `
NAMESPACE   POD    OWNER    NODE     AGE   MISSING
bank        bare   <none>   node-1   90m   account

Pods that no known controller creates again:
bank/bare: no controller owns it: delete it and create it yourself
`,
			wantStderr: "1 of 1 Pods were admitted without the webhook.\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := clitest.Outcome{Code: tc.wantCode, Stdout: strings.TrimPrefix(tc.wantStdout, "\n"), Stderr: tc.wantStderr}
			testutil.Check(t, "result", want, runWith(t, fake.NewClientset(tc.objects...), append([]string{"missed"}, tc.args...)...))
		})
	}
}

// The plugin's own configuration is asked for, because it says what Pods are owed.
func TestMissedCommandConfiguration(t *testing.T) {
	t.Parallel()
	file := testutil.WriteFile(t, "admission.yaml", []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"+
		"- name: ServiceAccount\n  configuration: {mountServiceAccountToken: false}\n"))
	got := runWith(t, fake.NewClientset(missedWorld()...), "missed", "--admission-control-config-file="+file)
	if got.Code != 2 || strings.Contains(got.Stdout, "token") || !strings.Contains(got.Stdout, "account") {
		t.Errorf("%+v, want findings, and accounts only", got)
	}
}

func TestMissedCommandFails(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("boom")
	})
	want := clitest.Outcome{Code: 1, Stderr: "Error: scan for Pods that were admitted without the webhook: list Pods: boom\n"}
	testutil.Check(t, "result", want, runWith(t, client, "missed"))
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	clitest.Refuses(t, func() *cobra.Command { return NewCommand(cli.Connect, nil) }, clitest.Refusals{
		"Namespaces": {[]string{"missed", "-A", "-n=shop"}, "Error: --namespace \"shop\" and --all-namespaces exclude each other\n"},
		"PodToken":   {[]string{"missed", "--pod-token=none"}, "Error: --pod-token \"none\" must be one of \"projected\", \"secret\"\n"},
		"File":       {[]string{"missed", "--admission-control-config-file=testdata/none"}, "Error: --admission-control-config-file: "},
		"Register":   {[]string{"register", "--kubeconfig=testdata/none"}, "Error: --kubeconfig \"testdata/none\": "},
	})
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/permissions"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/printers"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"
)

func TestPrintPermissions(t *testing.T) {
	t.Parallel()
	rules := []permissions.Rule{
		{Part: "token", Verbs: []string{"get"}, Path: "/.well-known/openid-configuration"},
		{Part: "token", Verbs: []string{"create"}, Group: "authentication.k8s.io", Resource: "tokenreviews"},
		{Part: "secure-serving", Verbs: []string{"create"}, Group: "authentication.k8s.io", Resource: "tokenreviews"},
		{
			Part: "leader-election", Verbs: []string{"update"}, Group: "coordination.k8s.io",
			Resource: "leases", Namespace: "kube-system", Name: "one",
		},
	}
	report := permissions.Report{User: manifests.User, Answers: []permissions.Answer{
		{Access: permissions.Access{Verb: "get", Path: "/.well-known/openid-configuration"}, Granted: true},
		{Access: permissions.Access{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"}, Err: errors.New("down")},
		{
			Access: permissions.Access{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: "kube-system",
				Name: "one"},
		},
	}}
	document := newReport(report, rules, check.WithFlags(report.Findings(rules), ""))
	cases := map[string]string{ // golden files if empty
		"table": `ANSWER    VERB     RESOURCE                             NAMESPACE     NAME   FOR
granted   get      /.well-known/openid-configuration    *             *      token
unknown   create   tokenreviews.authentication.k8s.io   *             *      token,secure-serving
missing   update   leases.coordination.k8s.io           kube-system   one    leader-election

1. user "system:sa-controller-manager" lacks permissions
   where:  update leases.coordination.k8s.io/one in kube-system (leader-election)
   costs:  the parts that need them do nothing
   remedy: kubectl apply -k manifests/permissions (with its token-secrets and options, if those are in use; ` +
			`for "signer" alone its directory of that name), ` +
			"or what this prints: sa-controller-manager preflight -o grant, with the flags of the process\n",
		"json": "",
		"yaml": "",
	}
	for output, want := range cases {
		t.Run(output, func(t *testing.T) {
			var b bytes.Buffer
			testutil.Must(t, printers.Document(&b, output, document, document.table))
			if want == "" {
				clitest.Golden(t, "report."+output, b.String())
				return
			}
			testutil.Check(t, "permissions", want, b.String())
		})
	}
}

func TestPreflightWithoutAnswer(t *testing.T) {
	t.Parallel()
	got := clitest.Run(t, NewCommand(cli.ConnectAsManager), "--master=http://127.0.0.1:1")
	testutil.Expect(t, got.Code == 1 && got.Stdout == "" && strings.HasPrefix(got.Stderr, "Error: ask kube-apiserver for its version: "),
		"%+v, want code 1 and an error that says what was asked", got)
}

// TestGrantOfAnotherUser: there is nothing to apply, which must not look as if all were granted.
func TestGrantOfAnotherUser(t *testing.T) {
	t.Parallel()
	client := clitest.NewKubeClient(func(string) string { return `{"gitVersion":"v1.37.2"}` })
	client.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{
			Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "jane"}},
		}, nil
	})
	client.PrependReactor("create", "selfsubjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SelfSubjectAccessReview{}, nil
	})
	connect := func(*options.Connection) (kubernetes.Interface, error) { return client, nil }
	got := clitest.Run(t, NewCommand(connect), "-o=grant")
	testutil.Expect(t, got.Code == cli.ExitFindings && got.Stdout == "" && strings.Contains(got.Stderr, `user "jane" lacks permissions`),
		"%+v, want code 2 and the findings on standard error", got)
}

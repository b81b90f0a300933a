// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// auditCluster has a token of an administrator that nobody uses, and one that is in order.
func auditCluster(t *testing.T) cli.ClientFunc {
	t.Helper()
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.Now()}
	}
	secret := func(name, account, token string) *corev1.Secret {
		object := &corev1.Secret{
			ObjectMeta: meta(name), Type: corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{"token": []byte(token)},
		}
		object.Annotations = map[string]string{corev1.ServiceAccountNameKey: account, corev1.ServiceAccountUIDKey: "1"}
		return object
	}
	account := func(name string) *corev1.ServiceAccount {
		object := &corev1.ServiceAccount{ObjectMeta: meta(name), Secrets: []corev1.ObjectReference{{Name: name + "-token"}}}
		object.UID = "1"
		return object
	}
	pod := &corev1.Pod{ObjectMeta: meta("user"), Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: "robot-token"},
	}}}}}
	client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "empty"}},
		secret("robot-token", "robot", clitest.LegacyToken(t)), secret("zeus-token", "zeus", "CANARY"),
		account("robot"), account("zeus"), pod)
	client.PrependReactor("get", "namespaces", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name := action.(clienttesting.GetAction).GetName()
		return name == "secret", nil, apierrors.NewForbidden(corev1.Resource("namespaces"), name, nil)
	})
	client.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review, _ := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		answer := review.DeepCopy()
		answer.Status.Allowed = review.Spec.User == "system:serviceaccount:shop:zeus"
		return true, answer, nil
	})
	return func(*options.Connection) (kubernetes.Interface, error) { return client, nil }
}

func TestAudit(t *testing.T) {
	t.Parallel()
	key := "--service-account-private-key-file=" + testutil.WriteFile(t, "sa.key", testkeys.P256())
	const untracked = "kube-apiserver does not track the use of tokens: unused tokens cannot be found.\n"
	const found = "Token Secrets: 2; findings: cluster-admin 1, bad-token 1, unmounted 1.\n"
	for name, tc := range map[string]struct {
		args   []string
		code   int
		rows   []string // how lines begin, or what they hold
		stderr string
	}{
		"all": {nil, 0, []string{"NAMESPACE", "shop        robot-token", "shop        zeus-token"}, untracked + found},
		"sorted": {
			[]string{"--sort-by=findings"}, 0, []string{"NAMESPACE", "shop        zeus-token", "shop        robot-token"}, untracked +
				found,
		},
		"fails":        {[]string{"--fail-on=unused,cluster-admin"}, 2, []string{"NAMESPACE", "shop", "shop"}, untracked + found},
		"fails on any": {[]string{"--fail-on=any"}, 2, []string{"NAMESPACE", "shop", "shop"}, untracked + found},
		"fails not":    {[]string{"--fail-on=orphan"}, 0, []string{"NAMESPACE", "shop", "shop"}, untracked + found},
		"hidden": {
			[]string{"--fail-on=cluster-admin", "--state=active"}, 0, []string{"NAMESPACE", "shop        robot-token"},
			untracked + "Token Secrets: 2, 1 shown.\n",
		},
		"without reach": {
			[]string{"--reach=false"}, 0, []string{"NAMESPACE", "shop", "shop"},
			untracked + "Token Secrets: 2; findings: bad-token 1, unmounted 1.\n",
		},
		"nothing": {[]string{"-n=empty", "--fail-on=any"}, 0, nil, untracked + "Token Secrets: 0.\n"},
		"all, said": {
			[]string{"-A", "-o=jsonpath={.tokens[*].name}", "--older-than=0d"}, 0, []string{"robot-token zeus-token"}, untracked + found,
		},
		"too young":   {[]string{"--older-than=90d"}, 0, nil, untracked + "Token Secrets: 2, 0 shown.\n"},
		"typo":        {[]string{"-n=typo"}, 1, nil, untracked + "Error: namespace \"typo\": namespaces \"typo\" not found\n"},
		"wrong label": {[]string{"-l=app=typo"}, 0, nil, untracked + "Token Secrets: 0.\n"},
		"gate with a wrong label": {
			[]string{"-l=app=typo", "--fail-on=any"}, 1, nil,
			untracked + "Token Secrets: 0.\nError: --fail-on: cannot be judged: no token Secret has these labels and this key ID\n",
		},
		"gate with a wrong key": {
			[]string{"--key-id=typo", "--fail-on=any"}, 1, nil,
			untracked + "Token Secrets: 2, 0 shown.\nError: --fail-on: cannot be judged: no token Secret has these labels and this " +
				"key ID\n",
		},
		"gate that nothing measures": {
			[]string{"--fail-on=unused"}, 1, []string{"NAMESPACE", "shop", "shop"},
			untracked + found + "Error: --fail-on: unused cannot be judged without tracking\n",
		},
		"may not ask": {
			[]string{"-n=secret", "--fail-on=any"}, 1, nil,
			untracked + "Token Secrets: 0.\nError: --fail-on: cannot be judged: whether the namespace secret exists may not be asked\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := clitest.Run(t, NewAuditCommand(auditCluster(t)), append([]string{key}, tc.args...)...)
			testutil.Expect(t, got.Code == tc.code && got.Stderr == tc.stderr, "code %d and %q, want %d and %q", got.Code, got.Stderr,
				tc.code,
				tc.stderr)
			lines := strings.Split(strings.TrimSuffix(got.Stdout, "\n"), "\n")
			if len(tc.rows) == 0 {
				testutil.Check(t, "printed", "", got.Stdout)
				return
			}
			testutil.Require(t, len(lines) == len(tc.rows), "printed %d lines, want %d:\n%s", len(lines), len(tc.rows), got.Stdout)
			for i, want := range tc.rows {
				testutil.Expect(t, strings.HasPrefix(lines[i], want), "line %q, want %q", lines[i], want)
			}
		})
	}
}

func TestAuditCommandLine(t *testing.T) {
	t.Parallel()
	clitest.Refuses(t, func() *cobra.Command { return NewAuditCommand(cli.Connect) }, clitest.Refusals{
		"output": {
			[]string{"-o=text"}, "Error: --output \"text\" must be one of \"table\", \"wide\", \"json\", \"yaml\", \"html\", " +
				"\"sarif\", \"jsonpath=TEMPLATE\"\n",
		},
		"output file": {[]string{"--output-file=x"}, "Error: --output-file \"x\" needs -o html\n"},
		"order":       {[]string{"--sort-by=size"}, "Error: --sort-by \"size\" must be one of \"namespace\", "},
		"state":       {[]string{"--state=active,odd"}, "Error: --state \"odd\" must be one of \"next\", "},
		"finding":     {[]string{"--finding=odd"}, "Error: --finding \"odd\" must be one of \"cluster-admin\", "},
		"fail on":     {[]string{"--fail-on=all"}, "Error: --fail-on \"all\" must be one of \"cluster-admin\", "},
		"no gate":     {[]string{"--fail-on="}, "Error: --fail-on \"\" must name a finding\n"},
		"reach":       {[]string{"--reach=false", "--fail-on=cluster-admin"}, "Error: --fail-on \"cluster-admin\" needs --reach\n"},
		"no role": {
			[]string{"--fail-on=retired-key"},
			"Error: --fail-on \"retired-key\" needs --service-account-key-ring or --service-account-private-key-file\n",
		},
		"all of one": {[]string{"-A", "-n=shop"}, "Error: --namespace \"shop\" must be left out with --all-namespaces\n"},
		"template": {
			[]string{"-o=jsonpath={.tokens"}, "Error: --output \"jsonpath={.tokens\" must be a JSONPath template: unclosed action\n",
		},
		"selector": {[]string{"-l=a in"}, "Error: --selector \"a in\" must be a label selector, such as app=shop\n"},
		"age": {
			[]string{"--older-than=-1s"},
			"Error: invalid argument \"-1s\" for \"--older-than\" flag: want a time such as 36h or 90d\n",
		},
		"key":    {[]string{"--service-account-key-file=testdata/none"}, "Error: --service-account-key-file: open testdata/none: "},
		"nobody": {[]string{"--master=http://127.0.0.1:1"}, "Error: read kube-apiserver's keys at /openid/v1/jwks: "},
	})
	got := clitest.Run(t, NewAuditCommand(cli.Connect), clitest.LegacyToken(t))
	testutil.Expect(t, got.Code == 1 && !strings.Contains(got.Stderr, "eyJ"), "a token as an argument: %+v", got)
}

// TestOutputFile: the file says which tokens are worth stealing.
func TestOutputFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "page.html")
	testutil.Must(t, os.WriteFile(path, []byte("of before"), 0o644)) // not kept
	key := "--service-account-private-key-file=" + testutil.WriteFile(t, "sa.key", testkeys.P256())
	got := clitest.Run(t, NewAuditCommand(auditCluster(t)), key, "-o=html", "--output-file="+path)
	testutil.Require(t, got.Code == 0 && got.Stdout == "", "%+v, want code 0 and nothing on standard output", got)
	info := testutil.Get(os.Stat(path))(t)
	page := testutil.Get(os.ReadFile(path))(t)
	testutil.Expect(t, bytes.Index(page, []byte("<td>robot-token")) >= bytes.Index(page, []byte("<td>zeus-token")),
		"the worst token is not the first one")
	if info.Mode() != 0o600 || !bytes.Contains(page, []byte("zeus-token")) || bytes.Contains(page, []byte("CANARY")) ||
		bytes.Contains(page, []byte("eyJ")) {
		t.Errorf("mode %v, want 0600 and a page without tokens:\n%s", info.Mode(), page)
	}
}

// TestNamespacesComplete: the shell gets them from kube-apiserver.
func TestNamespacesComplete(t *testing.T) {
	t.Parallel()
	var stdout bytes.Buffer
	root := &cobra.Command{Use: options.ProgramName}
	cli.SetUpRoot(root, &stdout, io.Discard)
	root.AddCommand(NewAuditCommand(auditCluster(t)))
	cli.Execute(t.Context(), root, []string{"__complete", "audit", "-n", ""}, io.Discard)
	testutil.Check(t, "completed", "empty\n:4\n", stdout.String())
}

func noCluster(*options.Connection) (kubernetes.Interface, error) { return fake.NewClientset(), nil }

// inspectInput runs the command on standard input.
func inspectInput(t *testing.T, input string, args ...string) (stdout string, err error) {
	t.Helper()
	cmd := NewInspectCommand(noCluster)
	var out bytes.Buffer
	cmd.SetIn(strings.NewReader(input))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestInspectReads(t *testing.T) {
	t.Parallel()
	token, key := clitest.LegacyToken(t), "--service-account-key-file="+testutil.WriteFile(t, "key", testkeys.P256())
	payload := base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"https://issuer.example.com"}`))
	header, signature, err := testkeys.Parse(testkeys.P256()).Sign(t.Context(), signing.LegacyHeader, payload)
	testutil.Must(t, err)
	bound := header + "." + payload + "." + signature
	for name, tc := range map[string]struct {
		input string
		args  []string
		want  error
		say   string
	}{
		"standard input": {token, []string{key}, nil, "Verdict:       valid"},
		"file":           {"", []string{key, testutil.WriteFile(t, "token", []byte(token+"\n"))}, nil, "Verdict:       valid"},
		"of a header":    {"Bearer " + token, []string{key}, nil, "Verdict:       valid"},
		"two tokens":     {token + "\n" + token, []string{key}, cli.ErrFindings, "malformed token"},
		"nothing":        {" \n", []string{key}, nil, "read the token from standard input: it is empty"},
		"of a Secret":    {base64.StdEncoding.EncodeToString([]byte(token)), []string{key}, nil, "pipe it through base64 -d"},
		"too much": {
			strings.Repeat("a", 128<<10+1), []string{key}, nil, "read the token from standard input: it is larger than 131072 bytes",
		},
		"other key": {
			token, []string{"--service-account-key-file=" + testutil.WriteFile(t, "key", testkeys.P384())}, cli.ErrFindings,
			"no key that was given has its key ID",
		},
		"not reviewed": {token, []string{key}, nil, "holds this very token: it was not asked; give --cluster\n"},
		"no issuer": {
			bound, []string{key}, nil, "the issuer was not compared: none was given; give --service-account-issuer\n",
		},
		"no key":        {token, nil, nil, "Verdict:   unknown"},
		"no key, error": {token, nil, nil, "it is unknown whether the token is valid: there is no key to verify the signature with"},
		"JWKS": {
			token, []string{"--jwks=" + testutil.WriteFile(t, "keys.json", clitest.JWKS(t, testkeys.P256()))}, nil, "published, of --jwks=",
		},
		"active key": {
			token, []string{"--service-account-private-key-file=" + testutil.WriteFile(t, "key", testkeys.P256())}, nil,
			"(ES256), active, of --service-account-private-key-file",
		},
		"missing file":     {"", []string{"testdata/none"}, nil, "read the token: open testdata/none: no such file or directory"},
		"machine readable": {token, []string{key, "-o=json"}, nil, `"verdict": "valid"`},
		"no cluster":       {token, []string{key, "--context=typo"}, nil, `--context "typo" must be left out: this call asks no cluster`},
		"empty issuer":     {token, []string{"--service-account-issuer="}, nil, `--service-account-issuer "" must be an issuer`},
		"plain HTTP": {
			"", []string{"--jwks=http://example.com?secret"}, nil, `--jwks "http://example.com" must be an https URL, a file or "cluster"`,
		},
		"two files": {"", []string{"a", "b"}, nil, "takes one file at most, got 2 arguments"},
		"unreadable CA": {
			token, []string{"--jwks=https://localhost", "--published-ca-file=" + testutil.WriteFile(t, "ca", nil)}, nil,
			"any valid RSA or ECDSA certificates",
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := inspectInput(t, tc.input, tc.args...)
			testutil.Expect(t, tc.want == nil || errors.Is(err, tc.want), "error %v, want %v", err, tc.want)
			if err != nil {
				out += err.Error()
			}
			testutil.CheckContains(t, "printed", tc.say, out)
			testutil.Expect(t, !strings.Contains(out, token[strings.LastIndex(token, ".")+1:]), "the signature is in\n%s", out)
		})
	}
}

// TestTokensAreNoArguments, and are not repeated in the refusal.
func TestTokensAreNoArguments(t *testing.T) {
	t.Parallel()
	token := clitest.LegacyToken(t)
	for name, args := range map[string][]string{
		"inspect": {"inspect", token}, "parent": {token}, "header": {"inspect", "Bearer", token},
		"quoted header": {"inspect", "Bearer " + token}, "cut off": {"inspect", token[:50]},
		"damaged": {"inspect", "x" + token}, "too long": {"inspect", strings.Repeat("x", 5000)},
	} {
		t.Run(name, func(t *testing.T) {
			got := clitest.Run(t, NewCommand(cli.Connect), args...)
			if got.Code != 1 || got.Stdout != "" ||
				!strings.HasPrefix(got.Stderr,
					"Error: this looks like a token as an argument, where everybody on the machine can read it") {
				t.Errorf("%+v", got)
			}
			testutil.Expect(t, !strings.Contains(got.Stderr, token[20:40]) && !strings.Contains(got.Stderr, "xxxx"),
				"the token is repeated: %s",
				got.Stderr)
		})
	}
}

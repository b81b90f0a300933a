// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"bytes"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/controllers/keyring/operator"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

const p256ID = "LswSX_8-TRzY3vSJg2wtCj6KrsbIeMNUDdtbd2GtVO4"

// world is a key ring beside a kube-apiserver.
type world struct {
	*operator.Operator

	t       *testing.T
	clock   *testingclock.FakeClock
	accepts []string // the key IDs that kube-apiserver verifies with
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "default", UID: "1"}}
	kube := clitest.NewKubeClient(func(string) string { return "" }, append(objects, account)...)
	policy := ring.Policy{CacheAge: time.Hour, TokenLifetime: 48 * time.Hour}
	w := &world{t: t, clock: testingclock.NewFakeClock(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)), accepts: []string{rsaID}}
	w.Operator = &operator.Operator{
		File: ring.At(filepath.Join(t.TempDir(), "keys", "ring.json")), Policy: policy, Clock: w.clock, Host: "cp-1",
		Cluster: &operator.Cluster{Client: kube, Issuer: "https://issuer.example", Namespace: "kube-system", Account: "default"},
	}
	kube.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		token := testutil.Get(tokens.Inspect(review.Spec.Token))(t)
		if review.Status.Authenticated = slices.Contains(w.accepts, token.KeyID); review.Status.Authenticated {
			review.Status.User = authenticationv1.UserInfo{Username: token.Subject, UID: "1"}
			review.Status.Audiences = review.Spec.Audiences
		}
		return true, review, nil
	})
	w.must(w.File.Init(testkeys.Parse(testkeys.RSA2048()), nil, new(ring.KeyOf(testkeys.Parse(testkeys.P256()))), w.clock.Now()))
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	testutil.Must(w.t, err)
}

// tokenOf is a legacy token.
func tokenOf(t *testing.T, data []byte) string {
	t.Helper()
	token := testutil.Get(tokens.NewIssuer(testkeys.Parse(data), tokens.CompatClaims).Legacy(t.Context(),
		tokens.Account{Namespace: "shop", Name: "someone", UID: "2"}, "mine"))(t)
	return token
}

// secretOf is a token Secret that holds a token.
func secretOf(name, token string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Type: corev1.SecretTypeServiceAccountToken,
		Data: map[string][]byte{"token": []byte(token)},
	}
}

// TestReportRevokedSecrets: nothing fills them again where kube-controller-manager is the token controller.
func TestReportRevokedSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, secretOf("a", tokenOf(t, testkeys.RSA2048())), secretOf("b", tokenOf(t, testkeys.P384())))
	w.accepts = append(w.accepts, p256ID)
	w.must(hosts.Edit(t.Context(), w.Cluster.Client, func(p *hosts.Published) error {
		p.Removed = ring.Revocations{{ID: rsaID, Digest: rsaID, Reason: ring.Revoked}}
		return nil
	}))
	r := testutil.Get(newReport(t.Context(), w.Operator, " --kubeconfig=k"))(t)
	i := slices.IndexFunc(r.Findings, func(f check.Finding) bool { return f.Code == check.RevokedHeld })
	if want := "1 token Secrets have a token of key " + rsaID; i < 0 || !strings.Contains(r.Findings[i].Message, want) ||
		!strings.Contains(r.Findings[i].Remedy, "keys revoke "+rsaID+" --kubeconfig=k names a token controller") {
		t.Errorf("findings %+v, want one with %q", r.Findings, want)
	}
}

// TestReportOfAnotherRing: no remedy has kube-apiserver accept the keys of a file that is not the newest ring.
func TestReportOfAnotherRing(t *testing.T) {
	t.Parallel()
	w, ours := newWorld(t), newWorld(t)
	w.Host = "cp-3" // where the ring of another cluster was put
	keys := []ring.Key{ring.KeyOf(testkeys.Parse(testkeys.P384())), ring.KeyOf(testkeys.Parse(testkeys.P521()))}
	ours.File = ring.At(filepath.Join(t.TempDir(), "ring.json"))
	w.must(ours.File.Init(testkeys.Parse(testkeys.P384()), nil, &keys[1], w.clock.Now()))
	state := testutil.Get(ours.File.Read())(t)
	w.accepts = []string{keys[0].ID, keys[1].ID}
	w.must(hosts.Edit(t.Context(), w.Cluster.Client, func(p *hosts.Published) error {
		for _, host := range []string{"cp-1", "cp-2"} {
			entry := hosts.EntryOf(state)
			entry.Host = host
			p.Entries = append(p.Entries, entry)
		}
		return nil
	}))
	for others := 2; others > 0; others-- { // of two hosts, one with each ring, both sign on
		r := testutil.Get(newReport(t.Context(), w.Operator, " --kubeconfig=k"))(t)
		var codes []string
		for _, finding := range r.Findings {
			codes = append(codes, finding.Code)
		}
		asks := slices.Contains(codes, "key-not-accepted")
		testutil.Expect(t, slices.Contains(codes, check.RingForked) && asks == (others == 1) && r.Keys[0].Accepted == "no",
			"beside %d others: findings %q, the active key is accepted: %s", others, codes, r.Keys[0].Accepted)
		w.must(hosts.Edit(t.Context(), w.Cluster.Client, func(p *hosts.Published) error {
			p.Entries = p.Entries[:1]
			return nil
		}))
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	w := newWorld(t, secretOf("a", tokenOf(t, testkeys.RSA2048())), secretOf("b", tokenOf(t, testkeys.RSA2048())))
	report := func() *Report {
		t.Helper()
		r := testutil.Get(newReport(t.Context(), w.Operator, " --kubeconfig=k"))(t)
		return r
	}
	if r := report(); len(r.Findings) > 0 || *r.Keys[0].Secrets != 2 || r.Keys[0].Accepted != "yes" || r.Keys[1].Accepted != "no" {
		t.Errorf("a new ring: %+v", r)
	}
	w.clock.Step(ring.Settled + time.Second)
	if r := report(); len(r.Findings) != 1 || r.Findings[0].Code != "key-not-accepted" {
		t.Errorf("a kube-apiserver lacks the next key for a day: %+v", r.Findings)
	}
	w.accepts = append(w.accepts, p256ID)
	w.must(w.Rotate(t.Context(), operator.RotateOptions{Force: true, Next: operator.Successor{None: true}}))
	r := report()
	revoke := "sa-controller-manager keys revoke --service-account-key-ring=" + w.File.Path() + " --kubeconfig=k --yes " + rsaID
	testutil.Expect(t, r.IfLeaked == revoke+" "+p256ID && *r.Keys[0].Secrets == 2, "rotated: %+v", r)
	path := w.File.Path()
	w.must(os.Chmod(path, 0o644))
	if r = report(); len(r.Findings) != 2 || r.Findings[0].Code != "key-file-readable" || r.Findings[1].Code != check.NoNextKey ||
		r.Findings[0].Remedy != "chmod 600 "+path {
		t.Errorf("others may read it: %+v", r)
	}
	w.checkPrinted(r)
	w.must(os.Chmod(path, 0o600))
	w.must(os.Chmod(filepath.Dir(path), 0o777))
	if r = report(); len(r.Findings) != 2 || r.Findings[0].Code != "key-directory-writable" {
		t.Errorf("others may replace it: %+v", r)
	}
	// The file of a late host has a key that has leaked: no remedy gives it back to a kube-apiserver.
	w.accepts = nil
	w.must(hosts.Edit(t.Context(), w.Cluster.Client, func(p *hosts.Published) error {
		p.Removed = ring.Revocations{{ID: p256ID, Digest: p256ID, Reason: ring.Revoked}}
		return nil
	}))
	refused := func(f check.Finding) bool { return f.Code == "key-not-accepted" }
	if r = report(); slices.ContainsFunc(r.Findings, refused) || r.Keys[1].Accepted != "" {
		t.Errorf("the active key is revoked: %+v", r)
	}
}

// checkPrinted wants every format to say the same, and none a private key.
func (w *world) checkPrinted(r *Report) {
	w.t.Helper()
	for format, words := range map[string][]string{
		"table": {
			"KEY-ID", rsaID, "retired", p256ID, "active", "If leaked:  sa-controller-manager keys revoke --service-account-key-ring=",
			"1. ",
		},
		"json": {`"accepted": "yes"`, `"secrets": 2`},
		"yaml": {"accepted: ", "generation: "},
	} {
		var b bytes.Buffer
		w.must(r.Print(&b, format))
		for _, word := range words {
			if !strings.Contains(b.String(), word) {
				w.t.Errorf("%s has no %q:\n%s", format, word, b.String())
			}
		}
		if strings.Contains(b.String(), "PRIVATE KEY") {
			w.t.Errorf("%s has a key", format)
		}
		if format != "table" {
			clitest.Golden(w.t, "ring."+format, strings.ReplaceAll(b.String(), r.File, "ring.json"))
		}
	}
}

// TestPublish publishes by hand where another issuer's documents are.
func TestPublish(t *testing.T) {
	t.Parallel()
	dir, ring := t.TempDir(), filepath.Join(t.TempDir(), "ring.json")
	first := testkeys.Parse(testkeys.P256()).ID()
	from := func(data []byte) string { return "--from-private-key-file=" + testutil.WriteFile(t, "key", data) }
	to := func(issuer string) []string {
		return []string{"publish", "--publish-keys=file://" + dir, "--service-account-issuer=" + issuer}
	}
	const a, b = "https://a.example.com", "https://b.example.com"
	server := httptest.NewTLSServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	ca := testutil.WriteFile(t, "ca.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	check := func(issuer string) []string {
		return []string{"publish", "--check", "--service-account-issuer=" + issuer, "--published-ca-file=" + ca}
	}
	goThrough(t, nil, ring, []step{
		{[]string{"init", from(testkeys.P256())}, 0, ""},
		{[]string{"publish", "--replace"}, 1, `--replace true must come with --publish-keys`},
		{to("kubernetes"), 1, "needs --service-account-issuer with the https URL"},
		{to(a), 0, `{"keys":[{`},
		{to(b), 1, `the documents of another issuer, "https://a.example.com", are there: "keys publish --replace" replaces them`},
		{append(to(b), "--replace"), 0, "documents written: [\"/.well-known/openid-configuration\"]"},
		{[]string{"publish"}, 0, first},
		{[]string{"publish", "--check"}, 1, `--check true must come with --service-account-issuer`},
		{check(server.URL), 0, " same "},
		{check(server.URL + "/nowhere"), 1, "404"},
		{[]string{"next", "--algorithm=P-384"}, 0, ""},
		{check(server.URL), 2, "The published keys are not the given ones."},
	})
	document := testutil.Get(os.ReadFile(filepath.Join(dir, signing.DiscoveryPath)))(t)
	testutil.Expect(t, strings.Contains(string(document), b), "after --replace the discovery document is %s", document)
}

func TestJWKS(t *testing.T) {
	t.Parallel()
	active, retired := testutil.WriteFile(t, "sa.key", testkeys.P256()), testutil.WriteFile(t, "old.pem", testkeys.P384())
	ring := []string{"--service-account-private-key-file=" + active, "--service-account-key-file=" + retired}
	both := string(clitest.JWKS(t, testkeys.P256(), testkeys.P384())) + "\n"
	cases := map[string]struct {
		args   []string
		code   int
		stdout string // in full, or its beginning with ...
		stderr string
	}{
		"document":     {nil, 0, both, ""},
		"idle context": {[]string{"--context=typo"}, 1, "", "Error: --context \"typo\" must be left out: this call asks no cluster\n"},
		"idle format":  {[]string{"-o=json"}, 1, "", "Error: --output \"json\" is for --check; a JWKS is always JSON\n"},
		"same": {
			[]string{"--check=" + testutil.WriteFile(t, "keys.json", clitest.JWKS(t, testkeys.P384(), testkeys.P256()))}, 0,
			"KEY-ID...", "",
		},
		"drift": {
			[]string{"--check=" + testutil.WriteFile(t, "keys.json", clitest.JWKS(t, testkeys.P256(), testkeys.P521())), "-o=yaml"}, 2,
			"apiVersion: sa-controller-manager/v1\nkeys:\n- algorithm: ES256\n  keyID: " + p256ID +
				"\n  result: same\n  state: active\n...", "The published keys are not the given ones.\n",
		},
		"nothing there": {[]string{"--check=testdata/none"}, 1, "", "Error: read keys: open testdata/none: no such file or directory\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := clitest.Run(t, NewJWKSCommand(cli.Connect), append(append([]string{}, ring...), tc.args...)...)
			got.Stderr, _, _ = strings.Cut(got.Stderr, "See '")
			if beginning, ok := strings.CutSuffix(tc.stdout, "..."); ok && strings.HasPrefix(got.Stdout, beginning) {
				got.Stdout = tc.stdout
			}
			testutil.Check(t, "result", clitest.Outcome{Code: tc.code, Stdout: tc.stdout, Stderr: tc.stderr}, got)
		})
	}
	if got := clitest.Run(t, NewJWKSCommand(cli.Connect)); got.Code != 1 ||
		got.Stderr != "Error: want keys: give --service-account-key-ring, --service-account-private-key-file or "+
			"--service-account-key-file\n" {
		t.Errorf("without keys: %+v", got)
	}
}

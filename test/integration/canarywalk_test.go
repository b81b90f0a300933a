// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/signertest"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// TestCanaryWalk makes a manager at its highest log level use keys and tokens in every way, and handle
// wrong input. Everything that it prints goes to the canary, which fails the run if it contains a
// byte of a secret.
func TestCanaryWalk(t *testing.T) {
	c := testcluster.Shared(t)
	port, err := devcluster.FreePort()
	testutil.Must(t, err)
	key, socket := testcluster.NewKeyFile(t, c.SigningKeyFile()), filepath.Join(testcluster.Dir(), "walk.sock")
	m := c.Manage(t, append(c.VerifyKeyFlags(), "--profiling", "--contention-profiling", key.Flag(),
		"--external-signer-socket="+socket, "--webhook-port="+strconv.Itoa(port))...)
	m.ExpectErrors = true // bad files and wrong credentials are logged as errors
	account := c.CreateAccount(t, c.Namespace(t), "walker")
	secret := c.IssueSignedBy(t, account, testcluster.KeyIDOfPEM(t, testcluster.ReadFile(t, c.SigningKeyFile())))
	token := string(secret.Data[corev1.ServiceAccountTokenKey])

	// Secrets with wrong content.
	for name, data := range map[string]string{
		"foreign": token, "cut": token[:len(token)-9], "key": string(testcluster.ReadFile(t, c.SigningKeyFile())), "orphan": token,
		"immutable": "",
	} {
		wrong := testcluster.TokenSecret(account.Namespace, name, account.Name)
		wrong.Data[corev1.ServiceAccountTokenKey] = []byte(data)
		wrong.Immutable = new(name == "immutable")
		if name == "orphan" {
			wrong.Annotations[corev1.ServiceAccountUIDKey] = "gone"
		}
		c.CreateSecret(t, wrong)
	}
	c.AwaitGone(t, account.Namespace, "orphan")

	// Files: half a key, then another key, which signs after a restart.
	good := testcluster.ReadFile(t, testcluster.ECDSAKeyFile())
	key.Replace(t, good[:len(good)*2/3])
	m.AwaitRefusals(t, "service-account-private-key-file", 1)
	key.Replace(t, good)
	testcluster.Poll(t, "a word about the changed key file", func() error {
		got, err := request(t.Context(), m.URL(), "/readyz/key-store?verbose", c.Config())
		if said := "the file has key " + testcluster.KeyIDOfPEM(t, good) + " now"; err == nil && !strings.Contains(got.body, said) {
			err = fmt.Errorf("want %q, got %s", said, got.body)
		}
		return err
	})
	c.IssueSignedBy(t, account, testcluster.KeyIDOfPEM(t, testcluster.ReadFile(t, c.SigningKeyFile())))

	walkSigner(t, socket, c.Issuer())
	for _, credentials := range []string{token, token[:len(token)-9] + "AAAAAAAAA", string(good)} {
		as := &rest.Config{BearerToken: strings.ReplaceAll(credentials, "\n", "")}
		for _, path := range []string{"/metrics", "/readyz", "/debug/pprof/cmdline?" + as.BearerToken[:40]} {
			testcluster.Leaks.Add("answer to wrong credentials", fmt.Sprintf("%+v", ask(t, m.URL(), path, as)))
		}
	}
	walkWebhook(t, port, token)
	walkPages(t, m, c.Config())
	m.Shutdown(t)
}

// walkSigner requests signatures that the signer must refuse.
func walkSigner(t *testing.T, socket, issuer string) {
	t.Helper()
	remote, err := signertest.Connect(socket)
	testutil.Must(t, err)
	defer func() { _ = remote.Close() }()
	payload := func(claims string) string { return base64.RawURLEncoding.EncodeToString([]byte(claims)) }
	for _, asked := range []string{
		signertest.Payload(0), "", "!", payload("null"), payload(`{"iss":` + strconv.Quote(issuer) + `,"sub":"system:masters"}`),
		payload(`{"iss":"kubernetes/serviceaccount","sub":"system:serviceaccount:a:b"}`),
	} {
		header, signature, err := remote.Sign(testcluster.Context(t), signing.JWTHeader, asked)
		if err == nil {
			t.Errorf("signed %q", asked)
		}
		testcluster.Leaks.Add("answer of the signer", fmt.Sprint(header, signature, err))
	}
}

// walkWebhook sends reviews that cannot be read and hold a token where none belongs. Not
// where a name belongs: the answer names an account that does not exist.
func walkWebhook(t *testing.T, port int, token string) {
	t.Helper()
	quoted, err := json.Marshal(token)
	testutil.Must(t, err)
	const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u",` +
		`"operation":"CREATE","namespace":"default","name":%[1]s,` +
		`"resource":{"version":"v1","resource":"pods"},"kind":{"version":"v1","kind":"Pod"},"object":%[2]s}}`
	for _, object := range []string{
		`{"metadata":{"annotations":{"t":%s}},"spec":{"containers":[{"env":[{"name":"T","value":%[1]s}]}]}}`,
		`{"spec":{"containers":%s}}`, `{"spec":%s}`, `{"spec":{"containers":[{"name":%s,"volumeMounts":[{"name":7}]}]}}`, `%s`, `{%s}`,
	} {
		for _, path := range []string{"/mutate", "/validate", "/"} {
			body := fmt.Sprintf(review, `"p"`, fmt.Sprintf(object, quoted))
			answer := post(t, fmt.Sprintf("https://127.0.0.1:%d%s", port, path), body)
			testcluster.Leaks.Add("answer of the webhook", answer)
		}
	}
}

func post(t *testing.T, url, body string) string {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	testutil.Must(t, err)
	transport := &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(testcluster.Context(t), http.MethodPost, url, strings.NewReader(body))
	testutil.Must(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := transport.RoundTrip(request)
	testutil.Must(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	testutil.Must(t, err)
	return fmt.Sprint(response.Header, string(text))
}

// walkPages reads every page of the secure port.
func walkPages(t *testing.T, m *testcluster.Manager, as *rest.Config) {
	t.Helper()
	pages := append([]string{
		"/readyz?verbose", "/livez?verbose", "/healthz?verbose", "/no/such/page", "/debug/flags/v",
		"/debug/pprof/trace?seconds=0.1", "/debug/pprof/symbol", "/debug/pprof/goroutine?debug=2",
	}, protectedPaths...)
	for _, profile := range []string{"goroutine", "heap", "allocs", "block", "mutex", "threadcreate"} {
		pages = append(pages, "/debug/pprof/"+profile+"?debug=1")
	}
	for _, page := range pages {
		got := ask(t, m.URL(), page, as)
		if got.status != http.StatusOK && !strings.HasPrefix(page, "/no/") && !strings.HasPrefix(page, "/debug/flags") {
			t.Errorf("%s answers %d: %s", page, got.status, got.body)
		}
		testcluster.Leaks.Add("page "+page, got.body)
	}
}

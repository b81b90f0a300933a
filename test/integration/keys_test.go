// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/signing/testkeys"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// TestWhatAKeyIsProvedWith: kube-apiserver answers which keys it accepts, whatever the clock of this host is, and without a
// key set: its issuer is no https URL.
func TestWhatAKeyIsProvedWith(t *testing.T) {
	further := testutil.WriteFile(t, "further.key", testkeys.P256())
	c := testcluster.New(t, devcluster.Options{Issuer: "api", ExtraKeyFiles: []string{further}})
	t.Run("ClocksApart", func(t *testing.T) { provesAtAnyTime(t, c) })

	t.Run("NoKeySet", func(t *testing.T) {
		for pem, want := range map[string]bool{
			string(testcluster.ReadFile(t, c.SigningKeyFile())): true, string(testkeys.P256()): true, string(testkeys.P384()): false,
		} {
			key := testkeys.Parse([]byte(pem))
			if has, err := keyprobe.HasKey(t.Context(), c.API, key.ID()); err != nil || has != want {
				t.Errorf("it has the %s key: %t, %v; want %t", key.Public().Algorithm, has, err, want)
			}
		}
		ring := "--service-account-key-ring=" + filepath.Join(t.TempDir(), "ring.json")
		keys := func(code int, words ...string) string {
			got := testcluster.Run(t, "", append([]string{"keys", words[0], ring, "--kubeconfig=" + c.Kubeconfig()}, words[1:]...)...)
			return got.ExpectCode(t, code).Stderr
		}
		keys(0, "init", "--from-private-key-file="+c.SigningKeyFile(), "--service-account-key-file="+further,
			"--service-account-key-file="+testutil.WriteFile(t, "gone.key", testkeys.P384()))
		keys(0, "revoke", "--yes", testkeys.Parse(testkeys.P384()).ID())
		id := testkeys.Parse(testkeys.P256()).ID()
		testutil.CheckContains(t, "of a key in its files", "kube-apiserver accepts key "+id+", which is revoked",
			keys(1, "revoke", "--yes", id))
	})
}

// provesAtAnyTime has the probe made by clocks that are off. Nothing else of the test is.
func provesAtAnyTime(t *testing.T, c *testcluster.ControlPlane) {
	const apart = "the clocks of kube-apiserver and of this host differ by more than 1h0m0s: "
	account, key := c.CreateAccount(t, c.Namespace(t), "probe"), testcluster.ReadFile(t, c.SigningKeyFile())
	now := time.Now().Round(0)
	for name, tc := range map[string]struct {
		reason  string
		off     time.Duration
		key     []byte
		want    string // in the error
		refuses bool
	}{
		"Right":      {key: key},
		"Fast":       {reason: "it was not valid yet", off: 3 * time.Minute, key: key},
		"Slow":       {reason: "it had expired", off: -3 * time.Minute, key: key},
		"HourFast":   {off: 59 * time.Minute, key: key},
		"HourSlow":   {off: -59 * time.Minute, key: key},
		"TooFast":    {reason: "the key is good", off: 2 * time.Hour, key: key, want: apart},
		"TooSlow":    {reason: "the key is good", off: -2 * time.Hour, key: key, want: apart},
		"UnknownKey": {off: 2 * time.Hour, key: testkeys.P384(), want: "kube-apiserver refuses its tokens: ", refuses: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(now.Add(tc.off))) //nolint:forbidigo // this sets the clock
				err := keyprobe.Prove(t.Context(), clientAt(t, c.Config(), now), c.Issuer(), account, testkeys.Parse(tc.key))
				if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) ||
					keyprobe.IsRefusal(err) != tc.refuses {
					t.Errorf("%s: %v, want %q, a refusal: %t", tc.reason, err, tc.want, tc.refuses)
				}
			})
		})
	}
}

// clientAt has no connection that outlives a request, and takes certificates as they are at a time.
func clientAt(t *testing.T, config *rest.Config, now time.Time) kubernetes.Interface {
	t.Helper()
	trust := testutil.Get(rest.TLSConfigFor(config))(t)
	trust.Time = func() time.Time { return now }
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true}}
	return testutil.Get(kubernetes.NewForConfigAndClient(&rest.Config{Host: config.Host}, client))(t)
}

// get reads a path that is no resource.
func get(t *testing.T, c *testcluster.ControlPlane, path string) []byte {
	t.Helper()
	return testutil.Get(c.API.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(t.Context()))(t)
}

// rawKeys are the keys of a JWKS as they stand there, in any order.
func rawKeys(t *testing.T, document []byte) []string {
	t.Helper()
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	testutil.Must(t, json.Unmarshal(document, &set))
	var keys []string
	for _, key := range set.Keys {
		keys = append(keys, string(key))
	}
	slices.Sort(keys)
	return keys
}

// TestJWKSIsThatOfKubeAPIServer compares bytes, of keys of both kinds.
func TestJWKSIsThatOfKubeAPIServer(t *testing.T) {
	c := testcluster.Shared(t)
	keys := []string{"--service-account-private-key-file=" + c.SigningKeyFile(), "--service-account-key-file=" + testcluster.ECDSAKeyFile()}
	jwks := append([]string{"keys", "jwks"}, keys...)
	ours, theirs := testcluster.Run(t, "", jwks...).ExpectCode(t, 0).Stdout, get(t, c, "/openid/v1/jwks")
	testutil.Check(t, "kube-apiserver's keys and ours", rawKeys(t, theirs), rawKeys(t, []byte(ours)))
	testutil.Check(t, "kube-apiserver's keys, an RSA and an ECDSA one", 2, len(rawKeys(t, theirs)))

	document := get(t, c, "/.well-known/openid-configuration")
	var discovery struct {
		URI string `json:"jwks_uri"`
	}
	testutil.Must(t, json.Unmarshal(document, &discovery))
	public := testutil.Get(signing.ParseJWKS([]byte(ours)))(t)
	got := testutil.Get(signing.MarshalDiscovery(c.Issuer(), public))(t)
	theirs = []byte(strings.Replace(string(document), discovery.URI, c.Issuer()+signing.JWKSPath, 1))
	testutil.Check(t, "the discovery documents", string(theirs), string(got))

	cluster := []string{"--check=cluster", "--kubeconfig=" + c.Kubeconfig()}
	testcluster.Run(t, "", append(jwks, cluster...)...).ExpectCode(t, 0)
	testcluster.Run(t, "", append([]string{"keys", "jwks", keys[0]}, cluster...)...).ExpectCode(t, 2).ExpectTexts(t, "extra",
		"it is none of the given keys")
	unknownKey := filepath.Join(t.TempDir(), "unknown.key")
	testutil.Must(t, devcluster.WriteSigningKey(unknownKey, devcluster.ECDSA))
	testcluster.Leaks.AddKeyFile(t, unknownKey)
	testcluster.Run(t, "", append(append(jwks, "--service-account-key-file="+unknownKey), cluster...)...).ExpectCode(t, 2).ExpectTexts(t,
		"missing", "it is not published")
}

// TestCanaryWalk makes a manager at its highest log level use keys and tokens in every way, and handle
// wrong input. Everything that it prints goes to the canary, which fails the run if it contains a
// byte of a secret.
func TestCanaryWalk(t *testing.T) {
	c := testcluster.Shared(t)
	port := testutil.Get(devcluster.FreePort())(t)
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
	remote := testutil.Get(signertest.Connect(socket))(t)
	defer func() { _ = remote.Close() }()
	payload := func(claims string) string { return base64.RawURLEncoding.EncodeToString([]byte(claims)) }
	for _, asked := range []string{
		signertest.Payload(0), "", "!", payload("null"), payload(`{"iss":` + strconv.Quote(issuer) + `,"sub":"system:masters"}`),
		payload(`{"iss":"kubernetes/serviceaccount","sub":"system:serviceaccount:a:b"}`),
	} {
		header, signature, err := remote.Sign(testcluster.Context(t), signing.JWTHeader, asked)
		testutil.Expect(t, err != nil, "signed %q", asked)
		testcluster.Leaks.Add("answer of the signer", fmt.Sprint(header, signature, err))
	}
}

// walkWebhook sends reviews that cannot be read and hold a token where none belongs. Not
// where a name belongs: the answer names an account that does not exist.
func walkWebhook(t *testing.T, port int, token string) {
	t.Helper()
	quoted := testutil.Get(json.Marshal(token))(t)
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
	tlsConfig := testutil.Get(rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}}))(t)
	transport := &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}
	request := testutil.Get(http.NewRequestWithContext(testcluster.Context(t), http.MethodPost, url, strings.NewReader(body)))(t)
	request.Header.Set("Content-Type", "application/json")
	response, err := transport.RoundTrip(request)
	testutil.Must(t, err)
	defer response.Body.Close()
	text := testutil.Get(io.ReadAll(response.Body))(t)
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
		testutil.Expect(t, got.status == http.StatusOK || strings.HasPrefix(page, "/no/") || strings.HasPrefix(page, "/debug/flags"),
			"%s answers %d: %s", page, got.status, got.body)
		testcluster.Leaks.Add("page "+page, got.body)
	}
}

// protectedPaths are the paths of the secure port that need permission.
var protectedPaths = []string{
	"/metrics", "/metrics/slis", "/configz", "/flagz", "/statusz",
	"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/readyz/caches", "/livez/leader-election",
}

// openPaths are those that kubelets probe.
var openPaths = []string{"/healthz", "/livez", "/readyz"}

// TestWhoMayRead asks every path with no, wrong and right credentials. The CA of clients is looked up, in the
// ConfigMap that kube-apiserver keeps.
func TestWhoMayRead(t *testing.T) {
	c := testcluster.Shared(t)
	m := c.Manage(t, "--token-secrets=manual", "--client-ca-file=")
	m.ExpectErrors = true // upstream's filter logs every 401 as an error
	testcluster.Poll(t, "the CA of clients is known", func() error {
		got, err := request(t.Context(), m.URL(), "/metrics", c.Config())
		if err == nil && got.status != http.StatusOK {
			err = fmt.Errorf("%d: %s", got.status, got.body)
		}
		return err
	})
	const reader, scraper = "serving-reader", "serving-scraper"
	namespace := c.Namespace(t)
	c.CreateAccount(t, namespace, scraper)
	mayRead(t, c, reader, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: reader})
	mayRead(t, c, scraper, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: scraper})
	for name, tc := range map[string]struct {
		reason             string
		config             *rest.Config
		protected, allowed int
	}{
		"Anonymous":  {reason: "probes carry no credentials", config: &rest.Config{}, protected: 403, allowed: 200},
		"WrongToken": {config: &rest.Config{BearerToken: "no.such.token"}, protected: 401, allowed: 401},
		"CertOfUnknownCA": {
			reason: "wrong credentials are worse than none, as in KCM", config: unknownCACertificate(t), protected: 401, allowed: 401,
		},
		"NoPermission": {config: userConfig(t, c, "serving-nobody"), protected: 403, allowed: 200},
		"Token": {
			reason: "as Prometheus in the cluster has", config: &rest.Config{BearerToken: requestToken(t, c, namespace, scraper)},
			protected: 200, allowed: 200,
		},
		"Certificate": {config: userConfig(t, c, reader), protected: 200, allowed: 200},
		"Masters":     {config: c.Config(), protected: 200, allowed: 200},
	} {
		t.Run(name, func(t *testing.T) {
			check := func(want int, paths []string) {
				for _, path := range paths {
					got := ask(t, m.URL(), path, tc.config)
					testutil.Expect(t, got.status == want, "%s\n%s answers %d, want %d: %s", tc.reason, path, got.status, want, got.body)
				}
			}
			check(tc.protected, protectedPaths)
			check(tc.allowed, openPaths)
		})
	}
	t.Run("NoSuchPath", func(t *testing.T) {
		testutil.Check(t, "a level above 7 logs tokens", http.StatusNotFound, ask(t, m.URL(), "/debug/flags/v", c.Config()).status)
	})
}

// mayRead allows a subject to read all paths.
func mayRead(t *testing.T, c *testcluster.ControlPlane, name string, subject rbacv1.Subject) {
	t.Helper()
	rbac, meta := c.API.RbacV1(), metav1.ObjectMeta{Name: name}
	_, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"get"}, NonResourceURLs: append(protectedPaths, openPaths...)},
	}}, metav1.CreateOptions{})
	testutil.Must(t, err)
	_, err = rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}, metav1.CreateOptions{})
	testutil.Must(t, err)
}

// requestToken returns a bound token.
func requestToken(t *testing.T, c *testcluster.ControlPlane, namespace, account string) string {
	t.Helper()
	request := testutil.Get(c.API.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{}))(t)
	testcluster.Leaks.AddTokens([]string{request.Status.Token})
	return request.Status.Token
}

// answer is the status and body of a response.
type answer struct {
	status int
	body   string
}

// ask gets a path with credentials.
func ask(t *testing.T, url, path string, as *rest.Config) answer {
	t.Helper()
	return testutil.Get(request(t.Context(), url, path, as))(t)
}

func request(ctx context.Context, url, path string, as *rest.Config) (answer, error) {
	config := rest.CopyConfig(as)
	config.TLSClientConfig.CAData, config.TLSClientConfig.Insecure = nil, true
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return answer{}, err
	}
	// A new connection, so that no identity of an earlier caller is left.
	transport := &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, http.NoBody)
	if err != nil {
		return answer{}, err
	}
	if as.BearerToken != "" {
		r.Header.Set("Authorization", "Bearer "+as.BearerToken)
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, string(body)}, err
}

func userConfig(t *testing.T, c *testcluster.ControlPlane, user string) *rest.Config {
	t.Helper()
	_, config, err := c.Identity(user)
	testutil.Must(t, err)
	return config
}

// unknownCACertificate returns a client certificate of an unknown CA for system:masters.
func unknownCACertificate(t *testing.T) *rest.Config {
	t.Helper()
	ca := testutil.Get(devcluster.NewAuthority("unknown"))(t)
	cert, key, err := ca.Client("unknown-ca", "system:masters")
	testutil.Must(t, err)
	return &rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: cert, KeyData: key}}
}

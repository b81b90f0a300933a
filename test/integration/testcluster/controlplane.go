// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testcluster runs sa-controller-manager on a real etcd and a real kube-apiserver for the
// tests beside it.
//
// kube-apiserver's own TokenReview judges every token. The binary under test is the one that
// devcluster.FindBinary finds. It runs as a process with ordinary flags, and the tests observe
// what an operator observes: objects, Events, health endpoints, metrics, log and exit code.
//
// Most tests of a package share one control plane, which starts when the first test needs it.
// A manager works on a whole cluster, so these tests run one after the other, each with a manager
// that has its own flags. Their subtests may run in parallel, each in its own namespace. Tests that
// need a kube-apiserver with other flags, or the whole cluster, have their own control planes and run
// in parallel at the end.
//
// Tests wait by watch, or poll an endpoint that has none. To show that nothing happens, a test
// calls AwaitProcessed: another object goes through the same watches and queues, and once the
// manager has processed it and is idle, it has processed everything before it.
//
// No test may cause a data race, an exit code other than 0 after SIGTERM, an error in the log
// where no fault was injected, or a token or a part of a private key in a log at the highest
// level, in a metric or in an Event. The package checks this for every manager that it starts.
package testcluster

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/keyutil"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/tokenrecord"
)

// Timeout bounds every wait. It is long because only a failing test
// uses it up.
const Timeout = 3 * time.Minute

// ControlPlane is a running control plane with a client and a record of its tokens.
type ControlPlane struct {
	*devcluster.Cluster

	API    kubernetes.Interface
	Tokens *tokenrecord.Record

	// hangUp closes connections to kube-apiserver, and hangUpManagers those to
	// managers: a manager that ends waits a second for HTTP/2 clients to leave.
	hangUp, hangUpManagers func()

	mu         sync.Mutex
	namespaces []string // made for tests and not purged yet
}

func startControlPlane(ctx context.Context, options devcluster.Options) (*ControlPlane, error) {
	cluster, err := devcluster.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{Cluster: cluster}
	if err := c.connect(); err != nil {
		return nil, errors.Join(err, cluster.Stop())
	}
	key, err := os.ReadFile(cluster.SigningKeyFile())
	if err != nil {
		return nil, errors.Join(err, cluster.Stop())
	}
	Leaks.AddKey(key)
	return c, nil
}

func (c *ControlPlane) connect() error {
	config := c.Config()
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("make an admin client: %w", err)
	}
	if c.API, err = kubernetes.NewForConfigAndClient(config, transport); err != nil {
		return fmt.Errorf("make an admin client: %w", err)
	}
	c.hangUp = hangUp(transport)
	c.Tokens = tokenrecord.Start(c.API)

	// client-go shares one transport among clients with equal TLS settings, so devcluster's clients
	// of managers use this one, too.
	config = c.Config()
	config.TLSClientConfig.CAData, config.TLSClientConfig.Insecure = nil, true
	if transport, err = rest.HTTPClientFor(config); err != nil {
		return fmt.Errorf("make a client for managers: %w", err)
	}
	c.hangUpManagers = hangUp(transport)
	return nil
}

// hangUp closes the idle connections below client-go's wrappers, which http.Client does not reach.
func hangUp(client *http.Client) func() {
	return func() { utilnet.CloseIdleConnectionsFor(client.Transport) }
}

// stop hands everything that could hold a token to the canary and stops everything.
func (c *ControlPlane) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	Leaks.AddTokens(c.Tokens.End())
	events, err := c.API.CoreV1().RESTClient().Get().AbsPath("/apis/events.k8s.io/v1/events").
		SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		err = fmt.Errorf("list all events: %w", err)
	}
	Leaks.Add("Events", string(events))
	c.hangUp()
	c.hangUpManagers()
	return errors.Join(err, c.Stop())
}

// New starts a control plane for one test, such as one that restarts kube-apiserver.
func New(t *testing.T, options devcluster.Options) *ControlPlane {
	t.Helper()
	c := testutil.Get(startControlPlane(t.Context(), options))(t)
	t.Cleanup(func() { testutil.CheckError(t, "stop the control plane", "", c.stop()) })
	return c
}

// Namespace creates a namespace for one test.
func (c *ControlPlane) Namespace(t *testing.T) string {
	t.Helper()
	namespace := testutil.Get(c.API.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{}))(t)
	c.purgeLater(namespace.Name)
	return namespace.Name
}

func (c *ControlPlane) purgeLater(namespaces ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.namespaces = append(c.namespaces, namespaces...)
}

// purge deletes the namespaces of a test as a namespace controller would, so that its objects do not
// slow down later managers.
func (c *ControlPlane) purge(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	namespaces := c.namespaces
	c.namespaces = nil
	c.mu.Unlock()
	ctx := cleanupContext(t)
	var working sync.WaitGroup
	next := make(chan string)
	for range 10 {
		working.Go(func() {
			for name := range next {
				testutil.CheckError(t, "purge namespace "+name, "", c.purgeOne(ctx, name))
			}
		})
	}
	for _, name := range namespaces {
		next <- name
	}
	close(next)
	working.Wait()
}

func (c *ControlPlane) purgeOne(ctx context.Context, name string) error {
	noFinalizers := []byte(`{"metadata":{"finalizers":null}}`)
	secrets, err := c.API.CoreV1().Secrets(name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	accounts, err := c.API.CoreV1().ServiceAccounts(name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, secret := range secrets.Items {
		if len(secret.Finalizers) > 0 {
			_, err = c.API.CoreV1().Secrets(name).Patch(ctx, secret.Name, types.MergePatchType, noFinalizers, metav1.PatchOptions{})
		}
	}
	for _, account := range accounts.Items {
		if len(account.Finalizers) > 0 {
			_, err = c.API.CoreV1().ServiceAccounts(name).Patch(ctx, account.Name, types.MergePatchType, noFinalizers,
				metav1.PatchOptions{})
		}
	}
	if err != nil {
		return err
	}
	everything := metav1.ListOptions{}
	if err := errors.Join(
		c.API.CoreV1().ServiceAccounts(name).DeleteCollection(ctx, metav1.DeleteOptions{}, everything),
		c.API.CoreV1().Secrets(name).DeleteCollection(ctx, metav1.DeleteOptions{}, everything),
		c.API.CoreV1().ConfigMaps(name).DeleteCollection(ctx, metav1.DeleteOptions{}, everything),
		c.API.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}),
	); err != nil {
		return err
	}
	_, err = c.API.CoreV1().Namespaces().Finalize(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.UpdateOptions{})
	return err
}

// Context returns a context that bounds a wait.
func Context(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), Timeout, fmt.Errorf("not within %s", Timeout))
	t.Cleanup(cancel)
	return ctx
}

// Poll calls ok until it returns nil. Use it for the answers of endpoints, which no watch announces.
func Poll(t *testing.T, what string, ok func() error) {
	t.Helper()
	err := await.Poll(Context(t), func(context.Context) error { return ok() })
	testutil.Require(t, err == nil, "%s: %v", what, err)
}

// RootCA returns the root CA that managers publish.
func (c *ControlPlane) RootCA(t *testing.T) string {
	t.Helper()
	pem := testutil.Get(os.ReadFile(c.CAFile()))(t)
	return string(pem)
}

// AwaitSecrets returns the Secrets of a namespace once they pass the check.
func (c *ControlPlane) AwaitSecrets(t *testing.T, namespace string, check await.Check[*corev1.Secret]) []*corev1.Secret {
	t.Helper()
	secrets, err := await.Secrets(Context(t), c.API, namespace, check)
	testutil.Require(t, err == nil, "in namespace %q: %v", namespace, err)
	return secrets
}

// AwaitSecret returns one Secret once it passes the check.
func (c *ControlPlane) AwaitSecret(t *testing.T, namespace, name string, check func(*corev1.Secret) error) *corev1.Secret {
	t.Helper()
	secrets := c.AwaitSecrets(t, namespace, one(name, check))
	secret, _ := await.Find(secrets, name)
	return secret
}

// AwaitGone waits until the Secrets are gone.
func (c *ControlPlane) AwaitGone(t *testing.T, namespace string, names ...string) {
	t.Helper()
	c.AwaitSecrets(t, namespace, await.Gone[*corev1.Secret](names...))
}

// AwaitFilled returns a Secret once it has a token.
func (c *ControlPlane) AwaitFilled(t *testing.T, namespace, name string) *corev1.Secret {
	t.Helper()
	return c.AwaitSecret(t, namespace, name, hasToken)
}

// hasToken is nil if the Secret has a token.
func hasToken(secret *corev1.Secret) error {
	if len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
		return fmt.Errorf("%q has no token", secret.Name)
	}
	return nil
}

// AwaitAccount returns one account once it passes the check.
func (c *ControlPlane) AwaitAccount(t *testing.T, namespace, name string, check func(*corev1.ServiceAccount) error) *corev1.ServiceAccount {
	t.Helper()
	accounts, err := await.ServiceAccounts(Context(t), c.API, namespace, one(name, check))
	testutil.Require(t, err == nil, "in namespace %q: %v", namespace, err)
	account, _ := await.Find(accounts, name)
	return account
}

// one is a check of a single object.
func one[T await.Object](name string, check func(T) error) await.Check[T] {
	return func(objects []T) error {
		object, ok := await.Find(objects, name)
		if !ok {
			return fmt.Errorf("%q does not exist", name)
		}
		return check(object)
	}
}

// AwaitAutoSecret returns the one Secret that an account references, once that Secret has a token.
func (c *ControlPlane) AwaitAutoSecret(t *testing.T, namespace, account string) *corev1.Secret {
	t.Helper()
	found := c.AwaitAccount(t, namespace, account, func(account *corev1.ServiceAccount) error {
		if len(account.Secrets) != 1 {
			return fmt.Errorf("%q references %v, want one", account.Name, account.Secrets)
		}
		return nil
	})
	return c.AwaitFilled(t, namespace, found.Secrets[0].Name)
}

// AwaitProcessed returns once the manager has processed every earlier change of Secrets and accounts,
// except keys that it requeued for later.
func (c *ControlPlane) AwaitProcessed(t *testing.T, m *Manager) {
	t.Helper()
	namespace := c.Namespace(t)
	for range 2 { // the first one may overtake the start of the manager
		account := c.CreateAccount(t, namespace, "fence-"+randomName())
		secret := c.CreateSecret(t, TokenSecret(namespace, account.Name, account.Name))
		c.AwaitFilled(t, namespace, secret.Name)
	}
	m.WaitIdle(t)
}

// AwaitConfigMap returns a ConfigMap once it passes the check.
func (c *ControlPlane) AwaitConfigMap(t *testing.T, namespace, name string, check func(*corev1.ConfigMap) error) *corev1.ConfigMap {
	t.Helper()
	found, err := await.ConfigMaps(Context(t), c.API, namespace, one(name, check))
	testutil.Require(t, err == nil, "in namespace %q: %v", namespace, err)
	configMap, _ := await.Find(found, name)
	return configMap
}

// AwaitAccounts waits until the accounts exist.
func (c *ControlPlane) AwaitAccounts(t *testing.T, namespace string, names ...string) {
	t.Helper()
	_, err := await.ServiceAccounts(Context(t), c.API, namespace, await.Named[*corev1.ServiceAccount](names...))
	testutil.Require(t, err == nil, "in namespace %q: %v", namespace, err)
}

// AwaitEvent waits for an Event of the product about a Secret, whose note contains text.
func (c *ControlPlane) AwaitEvent(t *testing.T, secret *corev1.Secret, kind, reason, text string) {
	t.Helper()
	lw := cache.NewListWatchFromClient(c.API.EventsV1().RESTClient(), "events", secret.Namespace, fields.Everything())
	_, err := await.Objects(Context(t), lw, &eventsv1.Event{}, func(events []*eventsv1.Event) error {
		for _, event := range events {
			if event.Regarding.Kind == "Secret" && event.Regarding.Name == secret.Name &&
				event.ReportingController == "sa-controller-manager" &&
				event.Type == kind && event.Reason == reason && strings.Contains(event.Note, text) {
				return nil
			}
		}
		return fmt.Errorf("no %s %s about Secret %s with %q", kind, reason, secret.Name, text)
	})
	testutil.Must(t, err)
}

// AutoCreatedLabel is that of the product.
const AutoCreatedLabel = "sa-controller-manager/auto-created"

// TokenSecret returns what a user writes: the type and the account's name.
func TokenSecret(namespace, name, account string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Annotations: map[string]string{corev1.ServiceAccountNameKey: account}},
		Type: corev1.SecretTypeServiceAccountToken,
		Data: map[string][]byte{},
	}
}

// CreateSecret creates a Secret.
func (c *ControlPlane) CreateSecret(t *testing.T, secret *corev1.Secret) *corev1.Secret {
	t.Helper()
	return testutil.Get(c.API.CoreV1().Secrets(secret.Namespace).Create(t.Context(), secret, metav1.CreateOptions{}))(t)
}

// GetSecret returns a Secret.
func (c *ControlPlane) GetSecret(t *testing.T, namespace, name string) *corev1.Secret {
	t.Helper()
	return testutil.Get(c.API.CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{}))(t)
}

// PatchSecret applies a JSON merge patch.
func (c *ControlPlane) PatchSecret(t *testing.T, namespace, name, patch string) *corev1.Secret {
	t.Helper()
	secret, err := c.API.CoreV1().Secrets(namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	testutil.Must(t, err)
	return secret
}

// CreateAccount creates an account that references Secrets.
func (c *ControlPlane) CreateAccount(t *testing.T, namespace, name string, secrets ...string) *corev1.ServiceAccount {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for _, secret := range secrets {
		account.Secrets = append(account.Secrets, corev1.ObjectReference{Name: secret})
	}
	return testutil.Get(c.API.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}))(t)
}

// GetAccount returns an account.
func (c *ControlPlane) GetAccount(t *testing.T, namespace, name string) *corev1.ServiceAccount {
	t.Helper()
	return testutil.Get(c.API.CoreV1().ServiceAccounts(namespace).Get(t.Context(), name, metav1.GetOptions{}))(t)
}

// Review returns the TokenReview of a token.
func (c *ControlPlane) Review(ctx context.Context, token string) (authenticationv1.TokenReviewStatus, error) {
	review, err := c.API.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.TokenReviewStatus{}, fmt.Errorf("review a token: %w", err)
	}
	return review.Status, nil
}

// ExpectAccepted waits until kube-apiserver accepts the token of a Secret, and checks that it stands
// for the account. It polls because kube-apiserver reads Secrets from its own cache, whose progress
// nothing announces.
//
// A review changes the Secret: kube-apiserver sets the day of use in a label. It also caches an
// accepted token for ten seconds, so do not review a token that must be refused soon after.
func (c *ControlPlane) ExpectAccepted(t *testing.T, secret *corev1.Secret, account *corev1.ServiceAccount) {
	t.Helper()
	ctx := Context(t)
	var got authenticationv1.UserInfo
	Poll(t, "await that kube-apiserver accepts the token of "+secret.Name, func() error {
		status, err := c.Review(ctx, string(secret.Data[corev1.ServiceAccountTokenKey]))
		if err == nil && !status.Authenticated {
			err = fmt.Errorf("it is refused: %s", status.Error)
		}
		got = status.User
		return err
	})
	want := authenticationv1.UserInfo{
		Username: "system:serviceaccount:" + account.Namespace + ":" + account.Name,
		UID:      string(account.UID),
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + account.Namespace, "system:authenticated"},
	}
	testutil.Check(t, "the token of "+secret.Name+" belongs to", want, got)
}

// ExpectComplete checks the whole content of a token Secret that the product has filled.
func (c *ControlPlane) ExpectComplete(t *testing.T, secret *corev1.Secret, account *corev1.ServiceAccount) {
	t.Helper()
	type content struct {
		Type        corev1.SecretType
		Keys        []string
		CA          string
		Namespace   string
		Annotations map[string]string
		Claims      map[string]any
		HeaderKeys  []string
	}
	header, claims := decodeToken(t, secret.Data[corev1.ServiceAccountTokenKey])
	got := content{
		Type:        secret.Type,
		Keys:        slices.Sorted(maps.Keys(secret.Data)),
		CA:          string(secret.Data[corev1.ServiceAccountRootCAKey]),
		Namespace:   string(secret.Data[corev1.ServiceAccountNamespaceKey]),
		Annotations: secret.Annotations,
		Claims:      claims,
		HeaderKeys:  slices.Sorted(maps.Keys(header)),
	}
	want := content{
		Type:      corev1.SecretTypeServiceAccountToken,
		Keys:      []string{"ca.crt", "namespace", "token"},
		CA:        c.RootCA(t),
		Namespace: account.Namespace,
		Annotations: map[string]string{
			"kubernetes.io/service-account.name": account.Name,
			"kubernetes.io/service-account.uid":  string(account.UID),
		},
		Claims:     legacyClaims(account, secret.Name),
		HeaderKeys: []string{"alg", "kid"},
	}
	testutil.Check(t, "secret "+secret.Namespace+"/"+secret.Name, want, got)
}

// legacyClaims returns the claims that kube-controller-manager writes
// (pkg/serviceaccount/legacy.go).
func legacyClaims(account *corev1.ServiceAccount, secret string) map[string]any {
	return map[string]any{
		"iss":                                    "kubernetes/serviceaccount",
		"sub":                                    "system:serviceaccount:" + account.Namespace + ":" + account.Name,
		"kubernetes.io/serviceaccount/namespace": account.Namespace,
		"kubernetes.io/serviceaccount/secret.name":          secret,
		"kubernetes.io/serviceaccount/service-account.name": account.Name,
		"kubernetes.io/serviceaccount/service-account.uid":  string(account.UID),
	}
}

// decodeToken reads a token without verifying it.
func decodeToken(t *testing.T, token []byte) (header, claims map[string]any) {
	t.Helper()
	segments := bytes.Split(token, []byte("."))
	testutil.Require(t, len(segments) == 3, "a token of %d segments", len(segments))
	for i, target := range []*map[string]any{&header, &claims} {
		text := testutil.Get(base64.RawURLEncoding.DecodeString(string(segments[i])))(t)
		testutil.Must(t, json.Unmarshal(text, target))
	}
	return header, claims
}

// KeyIDOf returns the ID of the key that signed a token.
func KeyIDOf(t *testing.T, secret *corev1.Secret) string {
	t.Helper()
	header, _ := decodeToken(t, secret.Data[corev1.ServiceAccountTokenKey])
	id, _ := header["kid"].(string)
	return id
}

// randomName returns a random part of a name.
func randomName() string { return strings.ToLower(rand.Text()[:8]) }

// cleanupContext returns a context for clean-up after the context of the test has ended.
func cleanupContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Timeout)
	t.Cleanup(cancel)
	return ctx
}

// KeyFile is the private key file of a manager, whose content a test changes.
type KeyFile struct{ Path string }

// NewKeyFile copies another file.
func NewKeyFile(t *testing.T, from string) KeyFile {
	t.Helper()
	f := KeyFile{Path: filepath.Join(t.TempDir(), "sa.key")}
	f.Replace(t, ReadFile(t, from))
	return f
}

// Flag returns the flag that names the file.
func (f KeyFile) Flag() string { return "--service-account-private-key-file=" + f.Path }

// VerifyKeyFlags returns flags for a manager in mode manual that signs with another key than the
// cluster's. Without them it would report an unknown key for every Secret of other tests.
func (c *ControlPlane) VerifyKeyFlags() []string {
	return []string{
		"--token-secrets=manual", "--service-account-key-file=" + c.SigningKeyFile(), "--service-account-key-file=" + ECDSAKeyFile(),
	}
}

// Replace replaces the file atomically, by a rename.
func (f KeyFile) Replace(t *testing.T, content []byte) {
	t.Helper()
	next := f.Path + ".next"
	testutil.Must(t, os.WriteFile(next, content, 0o600))
	testutil.Must(t, os.Rename(next, f.Path))
}

// ReadFile returns the content of a file.
func ReadFile(t *testing.T, path string) []byte {
	t.Helper()
	return testutil.Get(os.ReadFile(path))(t)
}

// KeyIDOfPEM derives the key ID of a private key as kube-apiserver does
// (pkg/serviceaccount/jwt.go, keyIDFromPublicKey).
func KeyIDOfPEM(t *testing.T, pem []byte) string {
	t.Helper()
	key := testutil.Get(keyutil.ParsePrivateKeyPEM(pem))(t)
	signer, ok := key.(crypto.Signer)
	testutil.Require(t, ok, "a key of type %T", key)
	der := testutil.Get(x509.MarshalPKIXPublicKey(signer.Public()))(t)
	digest := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(digest[:])
}

// IssueSignedBy creates a token Secret, waits for its token and checks which key has signed it.
func (c *ControlPlane) IssueSignedBy(t *testing.T, account *corev1.ServiceAccount, by string) *corev1.Secret {
	t.Helper()
	made := c.CreateSecret(t, TokenSecret(account.Namespace, "mine-"+randomName(), account.Name))
	secret := c.AwaitFilled(t, account.Namespace, made.Name)
	testutil.Check(t, "key that has signed", by, KeyIDOf(t, secret))
	return secret
}

// AwaitRefusals returns once n contents of a flag's file have been refused.
func (m *Manager) AwaitRefusals(t *testing.T, flag string, n int) {
	t.Helper()
	m.AwaitMetric(t, "sacm_file_reloads_total", devcluster.Labels{"flag": flag, "result": "refused"}, float64(n))
}

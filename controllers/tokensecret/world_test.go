// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

const (
	testNamespace = "ns"
	testUID       = "uid-1"
	otherUID      = "uid-2"
	testGrace     = 30 * time.Second
	testSuffix    = "bcdfg"
)

var (
	//go:embed testdata/ca.crt
	testCA string
	//go:embed testdata/other-ca.crt
	otherCA string
)

// world is a controller and what surrounds it.
type world struct {
	*controllertest.World
	*Controller
	ring *signing.Keyring
}

func newWorld(t testing.TB, live ...runtime.Object) *world {
	t.Helper()
	key, err := signing.ParsePrivateKey(testkeys.P256())
	if err != nil {
		t.Fatal(err)
	}
	w := &world{
		World: controllertest.NewWorld(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), live...),
		ring:  signing.NewKeyring(signing.NewRing(0, key.As(signing.Active))),
	}
	w.Controller = New(Config{
		Client:      w.Client,
		Informers:   w.Informers,
		Issuer:      tokens.NewIssuer(w.ring, tokens.CompatClaims),
		Keys:        w.ring,
		RootCA:      rootca.NewSource(testBundle(t)),
		Recorder:    w.Recorder(),
		Metrics:     NewMetrics(w.Registry.MustRegister),
		OrphanGrace: testGrace,
		Workers:     1,
		Clock:       w.Clock,
		NewSuffix:   func() string { return testSuffix },
	})
	return w
}

// syncsAccount has the account be looked at, and wants these actions.
func (w *world) syncsAccount(t *testing.T, reason string, want ...string) {
	t.Helper()
	if err := w.syncAccount(t.Context(), named("app")); err != nil {
		t.Fatalf("%s: %v", reason, err)
	}
	if diff := gocmp.Diff(want, w.actions(t)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", reason, diff)
	}
}

// actions says what was asked of the API, a line each, with every precondition.
func (w *world) actions(t *testing.T) []string {
	t.Helper()
	return w.Actions(t, describe)
}

func describe(t testing.TB, action clienttesting.Action) string {
	t.Helper()
	what := action.GetVerb() + " " + action.GetResource().Resource + " "
	switch action := action.(type) {
	case clienttesting.PatchActionImpl:
		return what + action.Name + describePatch(t, action)
	case clienttesting.DeleteActionImpl:
		only := action.DeleteOptions.Preconditions
		return fmt.Sprintf("%s%s [%s %s]", what, action.Name, *only.UID, *only.ResourceVersion)
	case clienttesting.GetActionImpl:
		return what + action.Name
	case clienttesting.ListActionImpl:
		options := action.ListOptions
		return fmt.Sprintf("%s%s at %s %s", what, options.FieldSelector, options.ResourceVersionMatch, options.ResourceVersion)
	case clienttesting.CreateActionImpl:
		secret := action.Object.(*corev1.Secret)
		return fmt.Sprintf("%s%s: %s for %s/%s, labels %v", what, secret.Name, strings.Join(sortedKeys(secret.Data), " "),
			secret.Annotations[corev1.ServiceAccountNameKey], secret.Annotations[corev1.ServiceAccountUIDKey], sortedKeys(secret.Labels))
	}
	t.Fatalf("unexpected action %#v", action)
	return ""
}

func describePatch(t testing.TB, action clienttesting.PatchActionImpl) string {
	t.Helper()
	var patch struct {
		Metadata meta.PatchMetadata `json:"metadata"`
		Data     map[string][]byte  `json:"data"`
		Secrets  []entryPatch       `json:"secrets"`
	}
	decoder := json.NewDecoder(strings.NewReader(string(action.Patch)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&patch); err != nil {
		t.Fatalf("patch %s: %v", action.Name, err)
	}
	said := fmt.Sprintf(" [%s %s]", patch.Metadata.UID, patch.Metadata.ResourceVersion)
	if uid, ok := patch.Metadata.Annotations[corev1.ServiceAccountUIDKey]; ok && uid == nil {
		return said + " for nobody, without " + strings.Join(sortedKeys(patch.Data), " ")
	}
	if len(patch.Metadata.Annotations) > 0 {
		said += " for " + *patch.Metadata.Annotations[corev1.ServiceAccountNameKey] + "/" + *patch.Metadata.Annotations[corev1.ServiceAccountUIDKey]
	}
	if len(patch.Data) > 0 {
		said += ": " + strings.Join(sortedKeys(patch.Data), " ")
	}
	for _, entry := range patch.Secrets {
		said += " " + cmp.Or(entry.Directive, "add") + " " + entry.Name
	}
	return said
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func testBundle(t testing.TB) *rootca.Bundle {
	t.Helper()
	bundle, err := rootca.ParseBundle([]byte(testCA))
	if err != nil {
		t.Fatal(err)
	}
	return bundle
}

// account is ServiceAccount ns/app with the UID and resourceVersion that the
// tests take for granted.
func account(change ...func(*corev1.ServiceAccount)) *corev1.ServiceAccount {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: testNamespace, Name: "app", UID: testUID, ResourceVersion: "10",
	}}
	for _, apply := range change {
		apply(account)
	}
	return account
}

func recreated(account *corev1.ServiceAccount) { account.UID = otherUID }

func terminatingAccount(account *corev1.ServiceAccount) {
	account.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	account.Finalizers = []string{"example.com/wait"}
}

func referencing(names ...string) func(*corev1.ServiceAccount) {
	return func(account *corev1.ServiceAccount) {
		for _, name := range names {
			account.Secrets = append(account.Secrets, corev1.ObjectReference{Name: name})
		}
	}
}

// listed references names, and has managedFields say that manager wrote that.
func listed(manager string, names ...string) func(*corev1.ServiceAccount) {
	return func(account *corev1.ServiceAccount) {
		referencing(names...)(account)
		for _, name := range names {
			account.ManagedFields = append(account.ManagedFields, metav1.ManagedFieldsEntry{
				Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
				FieldsV1: metav1.NewFieldsV1(`{"f:secrets":{".":{},"k:{\"name\":\"` + name + `\"}":{}}}`),
			})
		}
	}
}

// tokenSecret is a token Secret as a user creates it: it names account app and
// holds nothing.
func tokenSecret(name string, change ...func(*corev1.Secret)) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: testNamespace, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "20",
			Annotations: map[string]string{corev1.ServiceAccountNameKey: "app"},
		},
		Type: corev1.SecretTypeServiceAccountToken,
		Data: map[string][]byte{},
	}
	for _, apply := range change {
		apply(secret)
	}
	return secret
}

func boundTo(uid string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Annotations[corev1.ServiceAccountUIDKey] = uid }
}

func withData(key, value string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Data[key] = []byte(value) }
}

// filled makes the Secret one that lacks nothing.
func filled(t testing.TB) func(*corev1.Secret) {
	return func(secret *corev1.Secret) {
		boundTo(testUID)(secret)
		withData(corev1.ServiceAccountTokenKey, tokenFor(t, secret.Name, testUID))(secret)
		withData(corev1.ServiceAccountRootCAKey, testCA)(secret)
		withData(corev1.ServiceAccountNamespaceKey, testNamespace)(secret)
	}
}

func tokenFor(t testing.TB, secret, uid string) string {
	t.Helper()
	return tokenSignedBy(t, testkeys.P256(), secret, uid)
}

func tokenSignedBy(t testing.TB, pem []byte, secret, uid string) string {
	t.Helper()
	key, err := signing.ParsePrivateKey(pem)
	if err != nil {
		t.Fatal(err)
	}
	token, err := tokens.NewIssuer(key, tokens.CompatClaims).Legacy(t.Context(),
		tokens.Account{Namespace: testNamespace, Name: "app", UID: uid}, secret)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func immutable(secret *corev1.Secret) { secret.Immutable = new(true) }

func autoCreated(secret *corev1.Secret) {
	metav1.SetMetaDataLabel(&secret.ObjectMeta, tokensecrets.AutoCreatedLabel, "true")
}

func invalidSince(secret *corev1.Secret) {
	metav1.SetMetaDataLabel(&secret.ObjectMeta, tokensecrets.InvalidSinceLabel, "2026-01-01")
}

func terminatingSecret(secret *corev1.Secret) {
	secret.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	secret.Finalizers = []string{"example.com/wait"}
}

func createdAt(second int64) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.CreationTimestamp = metav1.Unix(second, 0) }
}

func named(name string) cache.ObjectName { return cache.NewObjectName(testNamespace, name) }

func replacing(name string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) {
		secret.Annotations[tokensecrets.ReplacesAnnotation] = tokensecrets.Predecessor{Name: name, UID: types.UID("uid-" + name)}.String()
	}
}

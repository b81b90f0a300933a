// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokenreissue

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/stateobject"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

func TestMain(m *testing.M) { testutil.Main(m) }

const (
	testUID  = "uid-app"
	otherUID = "uid-other"
)

func noon() time.Time { return time.Date(2026, 5, 10, 12, 0, 0, 0, time.UTC) }

// The keys of the tests. Others are what the ring does not have.
func newPEM() []byte     { return testkeys.P256() }
func oldPEM() []byte     { return testkeys.P256Other() }
func strangePEM() []byte { return testkeys.P384() }

func parse(t *testing.T, pem []byte) *signing.PrivateKey {
	t.Helper()
	key, err := signing.ParsePrivateKey(pem)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// rotated is a ring in which the new key has taken the place of the old one.
func rotated(t *testing.T) *signing.Ring { t.Helper(); return ringOf(t, 3, newPEM(), oldPEM()) }

// ringOf is a ring with an active and a retired key.
func ringOf(t *testing.T, generation int64, active, retired []byte) *signing.Ring {
	t.Helper()
	return signing.NewRing(generation, parse(t, active).As(signing.Active), parse(t, retired).Public().As(signing.Retired)).WithPast(past("main", generation))
}

// past is that of a ring that was changed on one branch only.
func past(branch string, generation int64) signing.Past {
	var past signing.Past
	for n := range generation {
		past.History = append(past.History, fmt.Sprintf("%d:%s", n+1, branch))
	}
	return past
}

// publishing is the Secret with a line for each ring.
func publishing(t *testing.T, rings ...PublishedRing) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: informers.KeyRingName, ResourceVersion: "7"},
		Data:       stateobject.Stamp(map[string][]byte{}),
	}
	for i, ring := range rings {
		line, err := json.Marshal(ring)
		if err != nil {
			t.Fatal(err)
		}
		secret.Data[fmt.Sprintf("%sreplica-%d", ringPrefix, i)] = line
	}
	return secret
}

func account(changes ...func(*corev1.ServiceAccount)) *corev1.ServiceAccount {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "app", UID: testUID, ResourceVersion: "10"}}
	for _, change := range changes {
		change(account)
	}
	return account
}

func referencing(names ...string) func(*corev1.ServiceAccount) {
	return func(account *corev1.ServiceAccount) {
		for _, name := range names {
			account.Secrets = append(account.Secrets, corev1.ObjectReference{Name: name})
		}
	}
}

// tokenSecret is one that a token controller has made for account app.
func tokenSecret(name string, changes ...func(*corev1.Secret)) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "20",
			CreationTimestamp: metav1.NewTime(noon().Add(-time.Minute)),
			Annotations:       map[string]string{corev1.ServiceAccountNameKey: "app", corev1.ServiceAccountUIDKey: testUID},
			Labels:            map[string]string{tokensecrets.AutoCreatedLabel: "true"},
		},
		Type: corev1.SecretTypeServiceAccountToken,
		Data: map[string][]byte{},
	}
	createdBy(meta.FieldManager)(secret)
	for _, change := range changes {
		change(secret)
	}
	return secret
}

func userMade(secret *corev1.Secret) { secret.Labels = nil; copied(secret) }

func annotated(name, value string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { metav1.SetMetaDataAnnotation(&secret.ObjectMeta, name, value) }
}

func mode(value string) func(*corev1.Secret) { return annotated(tokensecrets.ReissueAnnotation, value) }

func labelled(name, value string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { metav1.SetMetaDataLabel(&secret.ObjectMeta, name, value) }
}

func replacing(name string) func(*corev1.Secret) {
	return annotated(tokensecrets.ReplacesAnnotation, tokensecrets.Predecessor{Name: name, UID: types.UID("uid-" + name)}.String())
}

func createdAt(at time.Time) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.CreationTimestamp = metav1.NewTime(at) }
}

// createdBy has managedFields say who made the Secret.
func createdBy(manager string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) {
		secret.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:type":{}}`),
		}}
	}
}

// unmanaged is a Secret from before managedFields were kept.
func unmanaged(secret *corev1.Secret) { secret.ManagedFields = nil }

// copied is a Secret that a user has made of the YAML of another one.
func copied(secret *corev1.Secret) { createdBy("kubectl-create")(secret) }

// filledBy has managedFields say who wrote the token.
func filledBy(manager string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) {
		secret.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:token":{}},"f:type":{}}`),
		}}
	}
}

func terminating(secret *corev1.Secret) {
	secret.DeletionTimestamp, secret.Finalizers = &metav1.Time{Time: noon()}, []string{"example.com/wait"}
}

// signedBy fills the Secret with a token of a key, for the account with uid.
func signedBy(t *testing.T, pem []byte, uid string) func(*corev1.Secret) {
	t.Helper()
	issuer := tokens.NewIssuer(parse(t, pem), tokens.CompatClaims)
	return func(secret *corev1.Secret) {
		token, err := issuer.Legacy(t.Context(), tokens.Account{Namespace: secret.Namespace, Name: "app", UID: uid}, secret.Name)
		if err != nil {
			t.Fatal(err)
		}
		secret.Data[corev1.ServiceAccountTokenKey] = []byte(token)
	}
}

func withOld(t *testing.T) func(*corev1.Secret) { t.Helper(); return signedBy(t, oldPEM(), testUID) }
func withNew(t *testing.T) func(*corev1.Secret) { t.Helper(); return signedBy(t, newPEM(), testUID) }

// spaced appends a line feed to the token. kube-apiserver accepts the token if it is presented with it.
func spaced(secret *corev1.Secret) {
	secret.Data[corev1.ServiceAccountTokenKey] = append(secret.Data[corev1.ServiceAccountTokenKey], '\n')
}

func observeAll(secrets ...*corev1.Secret) []*tokensecrets.TokenSecret {
	var observed []*tokensecrets.TokenSecret
	for _, secret := range secrets {
		observed = append(observed, tokensecrets.Observe(secret))
	}
	return observed
}

// world is a controller and what surrounds it.
type world struct {
	*controllertest.World
	*Controller
	suffixes int
	// unconfirmed: kube-apiserver does not accept the active key.
	unconfirmed bool
}

func newWorld(t *testing.T, objects ...runtime.Object) *world {
	t.Helper()
	w := &world{World: controllertest.NewWorld(noon(), objects...)}
	ring := signing.NewKeyring(rotated(t))
	w.Controller = New(Config{
		Client: w.Client, Informers: w.Informers,
		Ring: ring, Issuer: tokens.NewIssuer(ring, tokens.CompatClaims),
		Confirmed: func(string) bool { return !w.unconfirmed },
		Recorder:  w.Recorder(), Metrics: NewMetrics(w.Registry.MustRegister), Clock: w.Clock,
		NewSuffix: func() string { w.suffixes++; return fmt.Sprintf("new%02d", w.suffixes) },
	})
	w.created, w.refused = expectations{}, refusals{}
	controllertest.EndQueues(t, w.Run)
	w.Cache(t, objects...)
	return w
}

// lead has the ring published, compares it, and forgets that it did.
func (w *world) lead(t *testing.T) {
	t.Helper()
	secrets, secret := w.Client.CoreV1().Secrets(metav1.NamespaceSystem), publishing(t, published(w.Ring.Ring()))
	if _, err := secrets.Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		if _, err := secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.compare(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Client.ClearActions()
}

// actions says what was asked of the API, a line each, with every precondition.
func (w *world) actions(t *testing.T) []string {
	t.Helper()
	return w.Actions(t, describeAction)
}

func describeAction(t testing.TB, action clienttesting.Action) string {
	t.Helper()
	what := action.GetVerb() + " " + action.GetResource().Resource + " "
	switch action := action.(type) {
	case clienttesting.GetActionImpl:
		return what + action.Name
	case clienttesting.PatchActionImpl:
		var patch struct {
			Metadata meta.PatchMetadata
			Data     map[string]string
			Secrets  []struct{ Name string }
		}
		if err := json.Unmarshal(action.Patch, &patch); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%s%s [%s %s]", what, action.Name, patch.Metadata.UID, patch.Metadata.ResourceVersion)
		for name := range patch.Data {
			line += " " + name
		}
		for _, ref := range patch.Secrets {
			line += " first " + ref.Name
		}
		return line
	case clienttesting.DeleteActionImpl:
		only := action.DeleteOptions.Preconditions
		return fmt.Sprintf("%s%s [%s %s]", what, action.Name, *only.UID, *only.ResourceVersion)
	case clienttesting.CreateActionImpl:
		if secret, ok := action.Object.(*corev1.Secret); ok {
			return fmt.Sprintf("%s%s replaces %s for %s, %d data", what, secret.Name, secret.Annotations[tokensecrets.ReplacesAnnotation],
				secret.Annotations[corev1.ServiceAccountUIDKey], len(secret.Data))
		}
		return what + action.Object.(metav1.Object).GetName()
	case clienttesting.UpdateActionImpl:
		object := action.Object.(metav1.Object)
		return fmt.Sprintf("%s%s [%s]", what, object.GetName(), object.GetResourceVersion())
	}
	t.Fatalf("unexpected action %#v", action)
	return ""
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

// What Account and TokenSecret make.
const (
	Namespace = "ns"
	UID       = "uid-app"
	OtherUID  = "uid-other" // of another account of the same name
)

// Account is ServiceAccount ns/app, with changes made to it.
func Account(changes ...func(*corev1.ServiceAccount)) *corev1.ServiceAccount {
	return changed(&corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "app", UID: UID, ResourceVersion: "10"},
	}, changes)
}

// TokenSecret is an empty token Secret that names the account, with changes made to it.
func TokenSecret(name string, changes ...func(*corev1.Secret)) *corev1.Secret {
	return changed(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "20",
			Annotations: map[string]string{corev1.ServiceAccountNameKey: "app"}, Labels: map[string]string{},
		},
		Type: corev1.SecretTypeServiceAccountToken,
		Data: map[string][]byte{},
	}, changes)
}

func changed[T any](object T, changes []func(T)) T {
	for _, change := range changes {
		change(object)
	}
	return object
}

// NewNamespace is a namespace in this phase.
func NewNamespace(name string, phase corev1.NamespacePhase) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NamespaceStatus{Phase: phase}}
}

// Active is a namespace in which objects can be created.
func Active(name string) *corev1.Namespace { return NewNamespace(name, corev1.NamespaceActive) }

// Referencing adds references to the account's list.
func Referencing(names ...string) func(*corev1.ServiceAccount) {
	return func(account *corev1.ServiceAccount) {
		for _, name := range names {
			account.Secrets = append(account.Secrets, corev1.ObjectReference{Name: name})
		}
	}
}

// Recreated is another account of the same name.
func Recreated(account *corev1.ServiceAccount) { account.UID = OtherUID }

// TerminatingAccount is about to be deleted.
func TerminatingAccount(account *corev1.ServiceAccount) {
	account.DeletionTimestamp, account.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"example.com/wait"}
}

// Annotated sets an annotation.
func Annotated(name, value string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { metav1.SetMetaDataAnnotation(&secret.ObjectMeta, name, value) }
}

// Labelled sets a label.
func Labelled(name, value string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { metav1.SetMetaDataLabel(&secret.ObjectMeta, name, value) }
}

// BoundTo annotates the UID of the account.
func BoundTo(uid string) func(*corev1.Secret) { return Annotated(corev1.ServiceAccountUIDKey, uid) }

// AutoCreated has the label of this program.
func AutoCreated(secret *corev1.Secret) { Labelled(tokensecrets.AutoCreatedLabel, "true")(secret) }

// InvalidSince has the label of the legacy token cleaner.
func InvalidSince(date string) func(*corev1.Secret) {
	return Labelled(tokensecrets.InvalidSinceLabel, date)
}

// UsedOn has the label of kube-apiserver.
func UsedOn(date string) func(*corev1.Secret) { return Labelled(tokensecrets.LastUsedLabel, date) }

// Replacing is a successor of another TokenSecret.
func Replacing(name string) func(*corev1.Secret) {
	return Annotated(tokensecrets.ReplacesAnnotation, tokensecrets.Predecessor{Name: name, UID: types.UID("uid-" + name)}.String())
}

// WithData sets a key of the data.
func WithData(key, value string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Data[key] = []byte(value) }
}

// WithToken has a legacy token for the account app with this UID, signed by a key of package testkeys.
func WithToken(t testing.TB, key []byte, uid string) func(*corev1.Secret) {
	issuer := tokens.NewIssuer(testkeys.Parse(key), tokens.CompatClaims)
	return func(secret *corev1.Secret) {
		token := testutil.Get(issuer.Legacy(t.Context(), tokens.Account{Namespace: secret.Namespace, Name: "app", UID: uid},
			secret.Name))(t)
		WithData(corev1.ServiceAccountTokenKey, token)(secret)
	}
}

// Token is that of a TokenSecret with such a token.
func Token(t testing.TB, key []byte, uid, secret string) string {
	return string(TokenSecret(secret, WithToken(t, key, uid)).Data[corev1.ServiceAccountTokenKey])
}

// AtVersion sets the resourceVersion, which the fake API server leaves alone.
func AtVersion(version string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.ResourceVersion = version }
}

// CreatedAt sets the time of creation.
func CreatedAt(at time.Time) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.CreationTimestamp = metav1.NewTime(at) }
}

// Immutable has kube-apiserver refuse every change.
func Immutable(secret *corev1.Secret) { secret.Immutable = new(true) }

// Terminating is about to be deleted.
func Terminating(secret *corev1.Secret) {
	secret.DeletionTimestamp, secret.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"example.com/wait"}
}

// WrittenBy adds a managedFields entry.
func WrittenBy(manager, fields string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) {
		secret.ManagedFields = append(secret.ManagedFields, metav1.ManagedFieldsEntry{
			Manager: manager, APIVersion: "v1", Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(fields),
		})
	}
}

// NamespaceTerminating is what kube-apiserver answers.
func NamespaceTerminating(resource string) error {
	err := apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("namespace is being terminated"))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	return err
}

// Conflict is the answer to a write from an old version.
func Conflict(resource string) *apierrors.StatusError {
	return apierrors.NewConflict(schema.GroupResource{Resource: resource}, "", errors.New("changed"))
}

// Forbidden is the answer to a request without permission.
func Forbidden(resource string) *apierrors.StatusError {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no"))
}

// NotFound is the answer for an object that is gone.
func NotFound(resource string) *apierrors.StatusError {
	return apierrors.NewNotFound(schema.GroupResource{Resource: resource}, "")
}

// AlreadyExists is the answer to a creation under a name that is taken.
func AlreadyExists(resource string) *apierrors.StatusError {
	return apierrors.NewAlreadyExists(schema.GroupResource{Resource: resource}, "")
}

func locate(t testing.TB, object runtime.Object) (resource schema.GroupVersionResource, namespace, name string) {
	t.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	testutil.Must(t, err)
	resource, _ = apimeta.UnsafeGuessKindToResource(kinds[0])
	accessor := testutil.Get(apimeta.Accessor(object))(t)
	return resource, accessor.GetNamespace(), accessor.GetName()
}

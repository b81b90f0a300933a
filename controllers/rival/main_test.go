// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rival

import (
	"crypto"
	"encoding/pem"
	"fmt"
	"slices"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

func TestMain(m *testing.M) {
	// klog flushes its buffers for as long as the process lives.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}

// Who writes.
const (
	us       = meta.FieldManager
	kcm      = meta.UpstreamFieldManager
	stranger = "k3s"
	nobody   = ""
)

// world has the two keys and root CAs of a quarrel.
type world struct {
	ours, theirs *signing.PrivateKey
	ca, otherCA  *rootca.Bundle
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{
		ours: key(t, testkeys.P256()), theirs: key(t, testkeys.P256Other()),
		ca: bundle(t, "ours"), otherCA: bundle(t, "theirs"),
	}
}

func key(t *testing.T, text []byte) *signing.PrivateKey {
	t.Helper()
	parsed, err := signing.ParsePrivateKey(text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func bundle(t *testing.T, name string) *rootca.Bundle {
	t.Helper()
	signer, err := keyutil.ParsePrivateKeyPEM(testkeys.P256())
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name}, signer.(crypto.Signer))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := rootca.ParseBundle(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// secret is a token Secret in the making.
type secret struct {
	t *testing.T
	*corev1.Secret
}

// newSecret is what a user creates: it names an account.
func newSecret(t *testing.T, name string) secret {
	t.Helper()
	return secret{t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: "1", ResourceVersion: "1",
			Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"},
		},
		Type: corev1.SecretTypeServiceAccountToken,
	}}
}

// with is the Secret after manager has written a key of data; nobody's name leaves no
// trace in managedFields.
func (s secret) with(manager, key string, value []byte) secret {
	return s.change(func(next *corev1.Secret) {
		if next.Data == nil {
			next.Data = map[string][]byte{}
		}
		next.Data[key] = value
		fields := fmt.Sprintf(`{"f:data":{"f:%s":{}}}`, key)
		next.ManagedFields = slices.DeleteFunc(next.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
			return string(e.FieldsV1.GetRawBytes()) == fields
		})
		if manager != nobody {
			next.ManagedFields = append(next.ManagedFields, metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: metav1.NewFieldsV1(fields)})
		}
	})
}

func (s secret) token(manager string, key *signing.PrivateKey) secret {
	s.t.Helper()
	token, err := tokens.NewIssuer(signing.NewKeyring(key), tokens.CompatClaims).Legacy(s.t.Context(),
		tokens.Account{Namespace: s.Namespace, Name: "robot", UID: "2"}, s.Name)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.with(manager, corev1.ServiceAccountTokenKey, []byte(token))
}

func (s secret) rootCA(manager string, bundle *rootca.Bundle) secret {
	return s.with(manager, corev1.ServiceAccountRootCAKey, bundle.PEM())
}

func (s secret) change(do func(*corev1.Secret)) secret {
	next := s.DeepCopy()
	next.ResourceVersion += "1"
	do(next)
	return secret{s.t, next}
}

func (s secret) observed() *tokensecrets.TokenSecret { return tokensecrets.Observe(s.Secret) }

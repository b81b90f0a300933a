// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sa-controller-manager/internal/testutil"
)

const awsSecret = "secret-of-the-cloud-3390"

// A kms answers as the API reference of AWS KMS says, for the two operations that are used. It
// stands in for the cloud, where sa-kms-signer was not tried.
type kms struct {
	server      *httptest.Server
	credentials string // a file, which also has the address

	mu      sync.Mutex
	keys    map[string]crypto.Signer // by key ID
	usages  map[string]string
	aliases map[string]string // key IDs
	refusal kmsError          // the answer to everything, if there is one
}

func newKMS(t *testing.T) *kms {
	t.Helper()
	k := &kms{keys: map[string]crypto.Signer{}, usages: map[string]string{}, aliases: map[string]string{}}
	k.server = httptest.NewServer(http.HandlerFunc(k.serve))
	t.Cleanup(k.server.Close)
	k.credentials = write(t, filepath.Join(t.TempDir(), "credentials"), fmt.Sprintf(
		"[default]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = %s\nendpoint_url = %s\n", awsSecret, k.server.URL))
	return k
}

// make makes a key and its alias, and returns its URI.
func (k *kms) make(t *testing.T, name, algorithm string) string {
	t.Helper()
	key := testutil.Get(generate(algorithm))(t)
	id := fmt.Sprintf("1234abcd-12ab-34cd-56ef-%012d", len(k.keys))
	k.keys[id], k.usages[id], k.aliases[name] = key, "SIGN_VERIFY", id
	return k.uri(name)
}

// uri names a key by its alias.
func (k *kms) uri(name string) string {
	return fmt.Sprintf("awskms:key-id=alias/%s?region=eu-central-1&credentials-file=%s", name, k.credentials)
}

// kmsRequest has the fields of all operations.
type kmsRequest struct {
	KeyId, MessageType, SigningAlgorithm string //nolint:revive // names of the API
	Message                              []byte
}

// kmsError is a code of the API reference and a message.
type kmsError struct{ code, message string }

func (e kmsError) Error() string { return e.code }

func (k *kms) serve(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	out, err := k.answer(r)
	if refused := (kmsError{}); errors.As(err, &refused) {
		w.WriteHeader(http.StatusBadRequest)
		out = map[string]any{"__type": refused.code, "message": refused.message}
	} else if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if err := json.NewEncoder(w).Encode(out); err != nil {
		panic(http.ErrAbortHandler) // the client has gone
	}
}

func (k *kms) answer(r *http.Request) (map[string]any, error) {
	var in kmsRequest
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		return nil, kmsError{"SerializationException", err.Error()}
	}
	signed := r.Header.Get("Authorization")
	if !strings.HasPrefix(signed, "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/") || !strings.Contains(signed, "/eu-central-1/kms/aws4_request") {
		return nil, kmsError{"UnrecognizedClientException", "The security token included in the request is invalid."}
	}
	if k.refusal != (kmsError{}) {
		return nil, k.refusal
	}
	id := in.KeyId
	if alias, ok := strings.CutPrefix(id, "alias/"); ok {
		id = k.aliases[alias]
	}
	key := k.keys[id]
	switch operation := r.Header.Get("X-Amz-Target"); {
	case key == nil:
		return nil, kmsError{"NotFoundException", "Alias arn:aws:kms:eu-central-1:111122223333:" + in.KeyId + " is not found."}
	case operation == "TrentService.GetPublicKey":
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		_, isRSA := key.(*rsa.PrivateKey)
		spec := map[bool]string{true: "RSA_2048", false: "ECC_NIST_P256"}[isRSA] // its size is not looked at
		return map[string]any{"KeyId": id, "KeySpec": spec, "KeyUsage": k.usages[id], "PublicKey": der}, err
	case operation == "TrentService.Sign":
		if k.usages[id] != "SIGN_VERIFY" {
			return nil, kmsError{"InvalidKeyUsageException", id + " key usage is " + k.usages[id] + " which is not valid for Sign."}
		}
		signature, err := kmsSign(key, in)
		return map[string]any{"KeyId": id, "Signature": signature, "SigningAlgorithm": in.SigningAlgorithm}, err
	}
	return nil, kmsError{"UnknownOperationException", ""}
}

func kmsSign(key crypto.Signer, in kmsRequest) ([]byte, error) {
	hash := map[string]crypto.Hash{
		"ECDSA_SHA_256": crypto.SHA256, "ECDSA_SHA_384": crypto.SHA384, "ECDSA_SHA_512": crypto.SHA512,
		"RSASSA_PKCS1_V1_5_SHA_256": crypto.SHA256,
	}[in.SigningAlgorithm]
	if hash == 0 || in.MessageType != "DIGEST" || len(in.Message) != hash.Size() {
		return nil, kmsError{"ValidationException", "Digest is invalid length for algorithm " + in.SigningAlgorithm}
	}
	return key.Sign(rand.Reader, in.Message, hash)
}

func generate(algorithm string) (crypto.Signer, error) {
	curves := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}
	if curve := curves[algorithm]; curve != nil {
		return ecdsa.GenerateKey(curve, rand.Reader)
	}
	return rsa.GenerateKey(rand.Reader, map[string]int{"RSA-2048": 2048, "RSA-3072": 3072}[algorithm])
}

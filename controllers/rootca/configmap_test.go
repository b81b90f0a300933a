// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package rootca

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"
)

// right is the ConfigMap as it is to be, with changes made to it.
func right(namespace string, bundle *Bundle, changes ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	configMap := render(metav1.ObjectMeta{Namespace: namespace, Name: "kube-root-ca.crt"}, bundle)
	for _, change := range changes {
		change(configMap)
	}
	return configMap
}

func immutable(c *corev1.ConfigMap)   { c.Immutable = new(true) }
func terminating(c *corev1.ConfigMap) { c.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0))) }
func undescribed(c *corev1.ConfigMap) { c.Annotations = nil }
func emptied(c *corev1.ConfigMap)     { c.Data = nil }

func data(key, value string) func(*corev1.ConfigMap) {
	return func(c *corev1.ConfigMap) { c.Data[key] = value }
}

func TestPlanConfigMap(t *testing.T) {
	t.Parallel()
	a := newAuthorities(t, "AB")
	bundle, previous := a.bundle(t, "A"), a.bundle(t, "B")
	mine := func(changes ...func(*corev1.ConfigMap)) *corev1.ConfigMap { return right("shop", bundle, changes...) }
	for name, tc := range map[string]struct {
		reason string
		gone   bool // the namespace is not Active
		found  *corev1.ConfigMap
		bundle *Bundle
		want   action
	}{
		"Missing":           {bundle: bundle, want: create},
		"MissingAndGoing":   {reason: "kube-apiserver would refuse it", gone: true, bundle: bundle},
		"Right":             {found: mine(), bundle: bundle},
		"Previous":          {found: right("shop", previous), bundle: bundle, want: update},
		"PreviousAndGoing":  {reason: "its Pods still run", gone: true, found: right("shop", previous), bundle: bundle, want: update},
		"Edited":            {found: mine(data("ca.crt", "hello")), bundle: bundle, want: update},
		"Emptied":           {found: mine(emptied), bundle: bundle, want: update},
		"ExtraKey":          {found: mine(data("more", "")), bundle: bundle, want: update},
		"Undescribed":       {found: mine(undescribed), bundle: bundle, want: update},
		"Immutable":         {reason: "it is what it is to be", found: mine(immutable), bundle: bundle},
		"ImmutableAndWrong": {found: mine(immutable, data("ca.crt", "hello")), bundle: bundle, want: refuse},
		"Terminating":       {found: mine(terminating, data("ca.crt", "hello")), bundle: bundle},
		"Nothing":           {reason: "there is no root CA"},
	} {
		t.Run(name, func(t *testing.T) {
			var found *informers.RootCA
			if tc.found != nil {
				found = informers.ObserveRootCA(tc.found)
			}
			testutil.Check(t, tc.reason, tc.want, planConfigMap(!tc.gone, found, tc.bundle))
		})
	}
}

func TestRender(t *testing.T) {
	t.Parallel()
	a := newAuthorities(t, "A")
	meta := metav1.ObjectMeta{
		Namespace: "shop", Name: "kube-root-ca.crt", UID: "uid", ResourceVersion: "7",
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}, Finalizers: []string{"e/f"},
	}
	got := render(meta, a.bundle(t, "A"))
	want := &corev1.ConfigMap{ObjectMeta: *meta.DeepCopy(), Data: map[string]string{"ca.crt": a.pem("A")}}
	want.Annotations["kubernetes.io/description"] = "Contains a CA bundle that can be used to verify the kube-apiserver " +
		"when using internal endpoints such as the " +
		"internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
	testutil.Check(t, "ConfigMap", want, got)
	testutil.Check(t, "annotations of what was given", map[string]string{"c": "d"}, meta.Annotations)
}

// certificate is a self-signed one in PEM form, another one each time.
func certificate(t testing.TB, name string) []byte {
	t.Helper()
	block, _ := pem.Decode(testkeys.P256())
	key := testutil.Get(x509.ParseECPrivateKey(block.Bytes))(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der := testutil.Get(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	return encode("CERTIFICATE", der)
}

func encode(label string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der})
}

func TestParseBundle(t *testing.T) {
	t.Parallel()
	one, two := certificate(t, "one"), certificate(t, "two")
	garbage := encode("CERTIFICATE", []byte("no DER"))
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	comment := []byte("\n# made by kubeadm\n")
	for name, tc := range map[string]struct {
		reason  string
		pem     []byte
		refused string // what the error must say; "" if the bundle is good
	}{
		"One":      {pem: one},
		"Two":      {reason: "old and new while a CA is replaced", pem: join(one, two)},
		"Comments": {reason: "what is around the certificates is published as it is", pem: join(comment, one, comment, two, comment)},
		"CRLF":     {pem: bytes.ReplaceAll(one, []byte("\n"), []byte("\r\n"))},
		"Tail":     {reason: "text behind the last certificate", pem: join(one, []byte("the end"))},
		"Other":    {reason: "as upstream, blocks of another kind are passed over", pem: join(encode("X509 CRL", []byte("list")), one)},

		"Nothing": {pem: nil, refused: "is empty"},
		"KeyByName": {
			reason: "of the wrong one, with another label", pem: bytes.ReplaceAll(testkeys.P256(), []byte("EC PRIVATE KEY"), []byte("CERTIFICATE")),
			refused: "at least one certificate",
		},
		"Key":         {reason: "the wrong one of the two files", pem: testkeys.P256(), refused: "at least one certificate"},
		"Garbage":     {pem: garbage, refused: "at least one certificate"},
		"GarbageLast": {reason: "half a bundle would lock out half of the clients", pem: join(one, garbage), refused: "at least one certificate"},
		"CutLast": {
			reason: "the copy of a file was cut off: half of the clients would be locked out", pem: join(one, two[:len(two)/2]),
			refused: "2 PEM blocks, 1 of which",
		},
		"Joined": {
			reason: "three files put together without a line break between two", pem: join(one, bytes.TrimSpace(two), one),
			refused: "3 PEM blocks, 1 of which",
		},
		"KeyBesides": {reason: "everybody who may read a token Secret would have it", pem: join(one, testkeys.P256()), refused: "private key"},
	} {
		t.Run(name, func(t *testing.T) {
			given := bytes.Clone(tc.pem)
			got, err := ParseBundle(given)
			clear(given) // the bundle keeps its own copy
			if tc.refused != "" {
				testutil.Require(t, err != nil && strings.Contains(err.Error(), tc.refused) && got == nil, "%s: got error %v, want one that says %q",
					tc.reason, err, tc.refused)
				for line := range strings.Lines(string(testkeys.P256())) {
					if text := strings.TrimSpace(line); !strings.HasPrefix(text, "-----") && strings.Contains(err.Error(), text) {
						t.Errorf("the error holds a part of the key: %v", err)
					}
				}
				return
			}
			testutil.Must(t, err)
			testutil.Check(t, tc.reason+": PEM", string(tc.pem), string(got.PEM()))
			testutil.Check(t, "hash", sha256.Sum256(tc.pem), got.Hash())
		})
	}
}

// TestDelayWithoutRootCA: a process without a root CA syncs namespaces all the same.
func TestDelayWithoutRootCA(t *testing.T) {
	t.Parallel()
	delay := NewSource(nil, nil).Delay(corev1.ResourceConfigMaps, cache.NewObjectName("shop", "kube-root-ca.crt"))
	testutil.Expect(t, delay == 0, "delayed by %v", delay)
}

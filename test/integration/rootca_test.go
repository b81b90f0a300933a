// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

const (
	publisherAlone = "--controllers=root-ca-cert-publisher"
	rootCAName     = "kube-root-ca.crt"
)

// TestRootCASameAsKubeControllerManager compares the objects.
func TestRootCASameAsKubeControllerManager(t *testing.T) {
	c := testcluster.Shared(t)
	kcm := c.StartKCM(t, publisherAlone)
	namespace := c.Namespace(t)
	published := func(configMap *corev1.ConfigMap) error {
		if configMap.Data["ca.crt"] != c.RootCA(t) {
			return errors.New("it does not hold the root CA")
		}
		return nil
	}
	theirs := c.AwaitConfigMap(t, namespace, rootCAName, published)
	testcluster.StopKCM(t, kcm)
	m := c.Manage(t, publisherAlone)
	m.WaitIdle(t)
	testutil.Expect(t, c.AwaitConfigMap(t, namespace, rootCAName, published).ResourceVersion == theirs.ResourceVersion,
		"what kube-controller-manager has made is written again")
	testutil.Must(t, c.API.CoreV1().ConfigMaps(namespace).Delete(t.Context(), rootCAName, metav1.DeleteOptions{}))
	ours := c.AwaitConfigMap(t, namespace, rootCAName, func(configMap *corev1.ConfigMap) error {
		if configMap.UID == theirs.UID {
			return errors.New("it is theirs")
		}
		return nil
	})
	for _, configMap := range []*corev1.ConfigMap{theirs, ours} {
		configMap.UID, configMap.ResourceVersion, configMap.CreationTimestamp, configMap.ManagedFields = "", "", metav1.Time{}, nil
	}
	testutil.Check(t, "ConfigMap", theirs, ours)
}

// TestRootCAExchange exchanges the root CA and then the serving certificate of kube-apiserver while two clients
// connect: one trusts kube-root-ca.crt, the other the ClusterTrustBundle.
func TestRootCAExchange(t *testing.T) {
	t.Parallel()
	const trustBundle = "kube-apiserver-serving-clustertrustbundle-publisher-controller"
	const both = publisherAlone + "," + trustBundle
	first, second := newRoot(t), newRoot(t)
	newFile := func(name string) testcluster.KeyFile {
		return testcluster.KeyFile{Path: filepath.Join(t.TempDir(), name)}
	}
	file, cert, key := newFile("ca.crt"), newFile("tls.crt"), newFile("tls.key")
	// kube-apiserver uses the files once they fit together.
	serve := func(by *devcluster.Authority) {
		t.Helper()
		certPEM, keyPEM, err := by.Server(serverName)
		testutil.Must(t, err)
		key.Replace(t, keyPEM)
		cert.Replace(t, certPEM)
	}
	file.Replace(t, first.PEM())
	serve(first)
	e := &exchange{ControlPlane: testcluster.New(t, devcluster.Options{
		APIServerFlags: map[string][]string{"tls-sni-cert-key": {cert.Path + "," + key.Path + ":" + serverName}},
	})}
	rootCA := "--root-ca-file=" + file.Path

	kcm := e.StartKCM(t, "--controllers="+trustBundle, rootCA) // before a takeover
	m := e.Manage(t, publisherAlone, rootCA)
	e.awaitTrust(t, first.PEM())
	stop := e.connect(t)
	testcluster.StopKCM(t, kcm)
	m.Shutdown(t)

	m = e.Manage(t, both, rootCA, "--root-ca-overlap=1h")
	file.Replace(t, second.PEM())
	e.awaitTrust(t, slices.Concat(second.PEM(), first.PEM()))
	serve(second)
	testutil.Must(t, await.Poll(testcluster.Context(t), func(ctx context.Context) error { return e.dial(ctx, second.PEM()) }))
	m.Shutdown(t)
	e.Manage(t, both, rootCA, "--root-ca-overlap=0s") // ends it
	e.awaitTrust(t, second.PEM())

	stop()
	t.Logf("connections %v, failed %v", e.tried, e.failed)
	testutil.Expect(t, e.failed == [2]int{} && e.tried[0] >= 50 && e.tried[1] >= 50,
		"of %v connections by kube-root-ca.crt and by the bundle %v failed; want 50 of each and none: %v", e.tried, e.failed, e.last)
}

func newRoot(t *testing.T) *devcluster.Authority {
	t.Helper()
	return testutil.Get(devcluster.NewAuthority("root"))(t)
}

// serverName selects the serving certificate that is exchanged. Other clients of kube-apiserver use another.
const serverName = "exchanged.example"

// exchange counts connections: the first client trusts the content of kube-root-ca.crt, the second that of all
// bundles of the signer, as kubelet projects them.
type exchange struct {
	*testcluster.ControlPlane

	mu            sync.Mutex
	tried, failed [2]int
	last          error
}

func (e *exchange) trust(ctx context.Context, client int) (pem []byte, err error) {
	if client == 0 {
		configMap, err := e.API.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, rootCAName, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return []byte(configMap.Data["ca.crt"]), nil
	}
	bundles, err := e.API.CertificatesV1().ClusterTrustBundles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, bundle := range bundles.Items {
		pem = append(pem, bundle.Spec.TrustBundle...)
	}
	return pem, nil
}

// awaitTrust returns once both clients trust this and nothing else.
func (e *exchange) awaitTrust(t *testing.T, want []byte) {
	t.Helper()
	testutil.Must(t, await.Poll(testcluster.Context(t), func(ctx context.Context) error {
		for client := range e.tried {
			if pem, err := e.trust(ctx, client); err != nil || !bytes.Equal(pem, want) {
				return errors.Join(err, fmt.Errorf("client %d trusts %d bytes, want %d", client, len(pem), len(want)))
			}
		}
		return nil
	}))
}

// connect has both clients connect all the time, until stop is called.
func (e *exchange) connect(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var connecting sync.WaitGroup
	for client := range e.tried {
		connecting.Go(func() {
			await.Every(ctx, 25*time.Millisecond, func(ctx context.Context, _ int) {
				pem, err := e.trust(ctx, client)
				if err == nil {
					err = e.dial(ctx, pem)
				}
				e.mu.Lock()
				defer e.mu.Unlock()
				if e.tried[client]++; err != nil {
					e.failed[client]++
					e.last = err
				}
			})
		})
	}
	stop = sync.OnceFunc(func() { cancel(); connecting.Wait() })
	t.Cleanup(stop)
	return stop
}

// dial connects as a client that trusts these certificates.
func (e *exchange) dial(ctx context.Context, trust []byte) error {
	server, err := url.Parse(e.Config().Host)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(trust)
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: pool, ServerName: serverName, MinVersion: tls.VersionTLS12}}
	connection, err := dialer.DialContext(ctx, "tcp", server.Host)
	if err != nil {
		return err
	}
	return connection.Close()
}

// TestSameAsKubeControllerManager compares the objects: for the same RSA key, account and Secret both
// write the same bytes, because a PKCS#1 v1.5 signature has no randomness. Golden tokens have the other
// algorithms.
func TestSameAsKubeControllerManager(t *testing.T) {
	c := testcluster.Shared(t)
	kcm := c.StartKCM(t)
	namespace := c.Namespace(t)
	account := c.CreateAccount(t, namespace, "someone")
	c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone"))
	theirs := c.AwaitFilled(t, namespace, "mine")
	c.ExpectAccepted(t, theirs, account)
	testcluster.StopKCM(t, kcm)
	c.PatchSecret(t, namespace, "mine", `{"metadata":{"annotations":{"`+corev1.ServiceAccountUIDKey+`":null}},"data":null}`)

	c.Manage(t, c.VerifyKeyFlags()...)
	ours := c.AwaitFilled(t, namespace, "mine")
	c.ExpectAccepted(t, ours, account)
	testutil.Check(t, "data", theirs.Data, ours.Data)
	testutil.Check(t, "annotations", theirs.Annotations, ours.Annotations)
}

// TestRewrittenRootCA: a foreign policy puts another root CA into a ConfigMap at each write. Few writes answer
// that, each of them counts as replaced, and an Event says so.
func TestRewrittenRootCA(t *testing.T) {
	c := testcluster.Shared(t)
	m := c.Manage(t, publisherAlone, "-v=2")
	m.ExpectErrors = true
	namespace := c.Namespace(t)
	c.AwaitConfigMap(t, namespace, rootCAName, func(*corev1.ConfigMap) error { return nil })
	testutil.Must(t, devcluster.RewriteRootCA(t.Context(), c.API, namespace))
	t.Cleanup(func() {
		policies, ctx := c.API.AdmissionregistrationV1(), context.WithoutCancel(t.Context())
		testutil.Must(t, errors.Join(
			policies.MutatingAdmissionPolicyBindings().Delete(ctx, namespace, metav1.DeleteOptions{}),
			policies.MutatingAdmissionPolicies().Delete(ctx, namespace, metav1.DeleteOptions{}),
		))
	})
	testcluster.Poll(t, "await that the policy acts", func() error {
		configMap, err := c.API.CoreV1().ConfigMaps(namespace).Patch(t.Context(), rootCAName, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{"changed":%q}}}`, rand.String(8)), metav1.PatchOptions{})
		if err == nil && configMap.Data["ca.crt"] == c.RootCA(t) {
			err = errors.New("ca.crt has the root CA still")
		}
		return err
	})
	const replaced = "sacm_root_ca_replaced_by_others_total"
	before, sent := m.Metric(t, replaced, nil), requestsOf(t, m)
	testcluster.Poll(t, "await that "+replaced+" grows", func() error {
		now := requestsOf(t, m)
		writes := now["PUT"] + now["PATCH"] - sent["PUT"] - sent["PATCH"]
		testutil.Require(t, writes <= 20, "%v writes to one ConfigMap", writes)
		if n := m.Metric(t, replaced, nil) - before; n < 3 {
			return fmt.Errorf("it has grown by %v, want 3", n)
		}
		return nil
	})
	awaitWarning(t, c, namespace, "ConfigMap", rootCAName, "again and again")
}

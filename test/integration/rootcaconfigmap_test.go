// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

const publisherAlone = "--controllers=root-ca-cert-publisher"

// TestRootCAConfigMaps covers case 43: every Active namespace has the ConfigMap, and
// what somebody does to it is undone once.
func TestRootCAConfigMaps(t *testing.T) {
	c := withOwnRootCAs(t)
	bundle := c.certificateAuthority(t)
	m := c.manage(t, publisherAlone)
	namespace := c.namespace(t)
	right := c.awaitRootCA(t, namespace, bundle)
	for _, name := range c.activeNamespaces(t) {
		c.awaitRootCA(t, name, bundle)
	}

	edits := map[string]struct {
		patch string
		keeps string // a label that must survive
	}{
		"Data":        {patch: `{"data":{"ca.crt":"mine"}}`},
		"Empty":       {patch: `{"data":{"ca.crt":""}}`},
		"NoData":      {patch: `{"data":null}`},
		"ExtraKey":    {patch: `{"data":{"more":"mine"}}`},
		"BinaryKey":   {patch: `{"binaryData":{"more":"AAAA"}}`},
		"Annotation":  {patch: `{"metadata":{"annotations":{"kubernetes.io/description":"mine"}}}`},
		"NoMetadata":  {patch: `{"metadata":{"annotations":null}}`},
		"WithALabel":  {patch: `{"metadata":{"labels":{"kept":"yes"}},"data":{"ca.crt":"mine"}}`, keeps: "kept"},
		"OtherValues": {patch: `{"metadata":{"annotations":{"other":"yes"}},"data":{"ca.crt":"mine"}}`},
	}
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			namespace := c.namespace(t) // each is a fight of its own
			c.awaitRootCA(t, namespace, bundle)
			edited := c.patchRootCA(t, namespace, edit.patch)
			got := c.awaitConfigMap(t, namespace, rootCAName, func(configMap *corev1.ConfigMap) error {
				if diff := cmp.Diff(right.Data, configMap.Data); diff != "" {
					return fmt.Errorf("data is wrong")
				}
				if configMap.Annotations["kubernetes.io/description"] != right.Annotations["kubernetes.io/description"] {
					return fmt.Errorf("the annotation is wrong")
				}
				if len(configMap.BinaryData) > 0 {
					return fmt.Errorf("there is binary data")
				}
				return nil
			})
			if edit.keeps != "" && got.Labels[edit.keeps] == "" {
				t.Errorf("the repair has dropped a label: %v", got.Labels)
			}
			if got.UID != edited.UID {
				t.Error("it was not repaired but replaced")
			}
			if len(got.ManagedFields) == 0 {
				t.Error("the managed fields are gone")
			}
			m.awaitIdle(t)
			if after := c.awaitRootCA(t, namespace, bundle); after.ResourceVersion != got.ResourceVersion {
				t.Error("it was written again after the repair")
			}
		})
	}
	t.Run("Deleted", func(t *testing.T) {
		before := c.awaitRootCA(t, namespace, bundle)
		c.deleteConfigMap(t, namespace)
		c.awaitConfigMap(t, namespace, rootCAName, func(configMap *corev1.ConfigMap) error {
			if configMap.UID == before.UID {
				return fmt.Errorf("it is the one that was deleted")
			}
			return nil
		})
	})
	t.Run("Immutable", func(t *testing.T) {
		namespace := c.namespace(t)
		c.awaitRootCA(t, namespace, bundle)
		m.awaitIdle(t)
		before := c.countConfigMapRequests(t)
		edited := c.patchRootCA(t, namespace, `{"data":{"ca.crt":"mine"},"immutable":true}`)
		c.awaitWarning(t, aboutRootCA(edited, "ImmutableRootCA"), "delete it")
		m.awaitIdle(t)
		if diff := cmp.Diff(before.plus(requests{"PATCH": 1}), c.countConfigMapRequests(t)); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		c.deleteConfigMap(t, namespace)
		c.awaitRootCA(t, namespace, bundle)
	})
	t.Run("Terminating", func(t *testing.T) {
		namespaces := make([]string, 20)
		for i := range namespaces {
			namespaces[i] = c.namespace(t)
			c.awaitRootCA(t, namespaces[i], bundle)
		}
		m.awaitIdle(t)
		before := c.countConfigMapRequests(t)
		for _, namespace := range namespaces {
			c.terminate(t, namespace)
			c.deleteConfigMap(t, namespace) // as the namespace controller does
		}
		c.awaitRootCA(t, c.namespace(t), bundle)
		m.awaitIdle(t)
		spent := c.countConfigMapRequests(t)
		// The watch of namespaces may be behind that of ConfigMaps, for one try each.
		if posts := spent["POST"] - before["POST"]; posts > float64(1+len(namespaces)) {
			t.Errorf("%v creations were tried", posts)
		}
		for _, namespace := range namespaces {
			found, err := await.ConfigMaps(limited(t), c.client, namespace, await.Gone[*corev1.ConfigMap](rootCAName))
			if err != nil {
				t.Errorf("%s: %v: %v", namespace, err, found)
			}
		}
	})
}

func (c *controlPlane) deleteConfigMap(t *testing.T, namespace string) {
	t.Helper()
	if err := c.client.CoreV1().ConfigMaps(namespace).Delete(t.Context(), rootCAName, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("delete configmap %s/%s: %v", namespace, rootCAName, err)
	}
}

// TestRootCAOfManyNamespaces holds the product to one request for each namespace.
func TestRootCAOfManyNamespaces(t *testing.T) {
	c := ownControlPlane(t, devcluster.Options{}) // nobody has to purge it
	m := c.manage(t, publisherAlone)
	c.awaitRootCA(t, c.namespace(t), c.certificateAuthority(t))
	m.awaitIdle(t)
	const total = 200
	before := c.countConfigMapRequests(t)
	var names []string
	begun := time.Now()
	for range total {
		names = append(names, c.namespace(t))
	}
	for _, name := range names {
		c.awaitRootCA(t, name, c.certificateAuthority(t))
	}
	took := time.Since(begun)
	m.awaitIdle(t)
	t.Logf("%d namespaces made and served in %v", total, took)
	if diff := cmp.Diff(before.plus(requests{"POST": total}), c.countConfigMapRequests(t)); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if synced := m.metric(t, "root_ca_cert_publisher_sync_total", devcluster.Labels{"code": "200"}); synced < total {
		t.Errorf("the metric says that there were %v syncs", synced)
	}
}

// TestRootCASameAsKubeControllerManager compares the objects.
func TestRootCASameAsKubeControllerManager(t *testing.T) {
	c := withOwnRootCAs(t)
	kcm := c.startKCM(t, publisherAlone)
	namespace := c.namespace(t)
	theirs := c.awaitRootCA(t, namespace, c.certificateAuthority(t))
	if _, err := kcm.Stop(); err != nil {
		t.Fatal(err)
	}
	m := c.manage(t, publisherAlone)
	m.awaitIdle(t)
	if kept := c.awaitRootCA(t, namespace, c.certificateAuthority(t)); kept.ResourceVersion != theirs.ResourceVersion {
		t.Error("what kube-controller-manager has made is written again")
	}
	c.deleteConfigMap(t, namespace)
	ours := c.awaitConfigMap(t, namespace, rootCAName, func(configMap *corev1.ConfigMap) error {
		if configMap.UID == theirs.UID {
			return fmt.Errorf("it is theirs")
		}
		return nil
	})
	for _, configMap := range []*corev1.ConfigMap{theirs, ours} {
		configMap.UID, configMap.ResourceVersion, configMap.CreationTimestamp, configMap.ManagedFields = "", "", metav1.Time{}, nil
	}
	if diff := cmp.Diff(theirs, ours); diff != "" {
		t.Errorf("ConfigMap (-theirs +ours):\n%s", diff)
	}
}

// TestRootCABesideKubeControllerManager covers two publishers: they agree, and if they
// do not, that is counted and does not become a storm.
func TestRootCABesideKubeControllerManager(t *testing.T) {
	await.Long(t)
	c := withOwnRootCAs(t)
	namespace := c.namespace(t)
	c.startKCM(t, publisherAlone, "--min-resync-period=1s")
	ca := keyFile{caFile(t).path}
	ca.replace(t, []byte(c.certificateAuthority(t)))
	m := c.manage(t, publisherAlone, "--min-resync-period=1s", "--root-ca-file="+ca.path)
	before := c.awaitRootCA(t, namespace, c.certificateAuthority(t))
	worked := m.metric(t, "root_ca_cert_publisher_sync_total", nil)
	m.awaitMetric(t, "root_ca_cert_publisher_sync_total", nil, worked+3*float64(len(c.activeNamespaces(t))))
	if after := c.awaitRootCA(t, namespace, c.certificateAuthority(t)); after.ResourceVersion != before.ResourceVersion {
		t.Error("two that agree write")
	}

	m.faulty = true // conflicts with the other one are to be expected
	spent := c.countConfigMapRequests(t)
	other := newRootAuthority(t, "other")
	ca.replace(t, []byte(other.pem))
	namespaces := float64(len(c.activeNamespaces(t)))
	m.awaitMetric(t, rootCAReplaced, devcluster.Labels{"resource": "configmaps"}, 3*namespaces)
	spent = c.countConfigMapRequests(t).plus(requests{"PUT": -spent["PUT"]})
	// Both write, and so does what keeps the state. kube-controller-manager is woken by
	// our writes alone.
	if most := 2*5*namespaces + 1; spent["PUT"] > most {
		t.Errorf("%v updates for three rounds, want %v at most", spent["PUT"], most)
	}
}

// TestRootCAOffAndNowhere covers what publishes nothing.
func TestRootCAOffAndNowhere(t *testing.T) {
	c := withOwnRootCAs(t)
	m := c.manage(t, "--controllers=*,-root-ca-certificate-publisher-controller", "--token-secrets=manual")
	namespace := c.namespace(t)
	c.createAccount(t, namespace, "someone")
	c.createSecret(t, tokenSecret(namespace, "mine", "someone"))
	c.awaitSecretCA(t, namespace, "mine", c.certificateAuthority(t))
	m.awaitIdle(t)
	found, err := c.client.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(found.Items) > 0 {
		t.Errorf("there are %d ConfigMaps, and error %v", len(found.Items), err)
	}
	if state := c.stateOfRootCA(t); !strings.Contains(state["current.crt"], "BEGIN CERTIFICATE") {
		t.Errorf("the overlap of token Secrets has no state: %v", slices.Sorted(keysOf(state)))
	}
}

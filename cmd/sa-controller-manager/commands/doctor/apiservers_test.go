// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/controllers/keyring/consistency"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

// newAPIServer is one of several: it signs bound tokens with a key and publishes the keys that it knows.
func newAPIServer(t *testing.T, signs *signing.PrivateKey, knows ...*signing.PrivateKey) *clitest.KubeClient {
	t.Helper()
	document := ""
	if len(knows) > 0 {
		var public []signing.PublicKey
		for _, key := range knows {
			public = append(public, key.Public())
		}
		encoded, err := signing.MarshalJWKS(public)
		testutil.Must(t, err)
		document = string(encoded)
	}
	client := clitest.NewKubeClient(func(path string) string {
		if path != signing.JWKSPath {
			return ""
		}
		return document
	})
	issueWith(t, client.Clientset, signs)
	return client
}

// issueWith has a kube-apiserver answer TokenRequests.
func issueWith(t *testing.T, client *fake.Clientset, key *signing.PrivateKey) {
	t.Helper()
	token, err := tokens.NewIssuer(key, tokens.CompatClaims).Legacy(t.Context(),
		tokens.Account{Namespace: "kube-system", Name: "default", UID: "1"}, "x")
	testutil.Must(t, err)
	client.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{Token: token}}, nil
	})
}

// controlPlane are the objects of one with a kube-apiserver on each host.
func controlPlane(hosts []string, addresses ...string) []runtime.Object {
	return append(clitest.IdentityLeases(hosts...), &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"},
		},
		Ports:     []discoveryv1.EndpointPort{{Port: new(int32(6443))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: addresses}},
	})
}

func TestAPIServers(t *testing.T) {
	t.Parallel()
	old, next := testkeys.Parse(testkeys.RSA2048()), testkeys.Parse(testkeys.P256())
	published := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: consistency.SecretName},
		Data: map[string][]byte{"schema-version": []byte("1"), "host.cp-1": fmt.Appendf(nil,
			`{"generation":3,"history":["v"],"keys":{%q:"active",%q:"retired"},"signsWith":%q,"signer":true}`, next.ID(), old.ID(), next.ID())},
	}
	mixed := published.DeepCopy() // the ring of another cluster was put on cp-3
	mixed.Data["host.cp-2"] = mixed.Data["host.cp-1"]
	mixed.Data["host.cp-3"] = []byte(`{"generation":9,"history":["w"],"keys":{"other":"active"},"signsWith":"other","signer":true}`)
	ha := slices.Clip(controlPlane([]string{"cp-1", "cp-2"}, "10.0.0.1", "10.0.0.2"))
	with := func(first, second *clitest.KubeClient) func(*testing.T, *cluster, *fake.Clientset) {
		return func(t *testing.T, c *cluster, client *fake.Clientset) {
			issueWith(t, client, next)
			c.Dial = func(url string) (kubernetes.Interface, error) {
				return map[string]*clitest.KubeClient{"https://10.0.0.1:6443": first, "https://10.0.0.2:6443": second}[url], nil
			}
		}
	}
	down := newAPIServer(t, old)
	failing("create", "serviceaccounts")(t, nil, down.Clientset)
	const second = "https://10.0.0.2:6443"
	try(t, "apiservers", map[string]checkCase{
		"One":  {objects: controlPlane([]string{"cp-1"}, "10.0.0.1"), skipped: "one kube-apiserver"},
		"Good": {objects: append(ha, published), change: with(newAPIServer(t, next, old, next), newAPIServer(t, next, old, next))},
		"JoinedLater": {
			reason:  "kubeadm join has copied the key from before the rotation, and the key ring has both",
			objects: append(ha, published), change: with(newAPIServer(t, next, old, next), newAPIServer(t, old, old)),
			want: []string{"key-not-accepted: it lacks the key with which the kube-apiserver at https://10.0.0.1:6443 signs"},
		},
		"KeyFiles": {
			reason:  "both kube-apiservers sign with the key from before the rotation, the token controller does not",
			objects: append(ha, published), change: with(newAPIServer(t, old, old, next), newAPIServer(t, old, old)),
			want: []string{"key-not-accepted: it lacks the key with which the process on host cp-1 signs"},
		},
		"OneAway": {
			reason:  "it hides nothing about the others",
			objects: append(ha, published), change: with(newAPIServer(t, old, old), down),
			want: []string{"key-not-accepted: it lacks the key with which the process on host cp-1 signs"}, wantErr: second + ": ",
		},
		"OtherCluster": {
			reason:  "the remedy had every kube-apiserver accept the keys of another cluster",
			objects: append(ha, mixed), change: with(newAPIServer(t, next, old, next), newAPIServer(t, next, old, next)),
		},
		"OwnKey": {
			reason:  "the second one has a key of its own",
			objects: ha, change: with(newAPIServer(t, old, old), newAPIServer(t, next, old, next)),
			want: []string{"key-not-accepted: it lacks the key with which the kube-apiserver at https://10.0.0.2:6443 signs"},
		},
		"NotReached": {
			reason:  "only one address is known",
			objects: controlPlane([]string{"cp-1", "cp-2"}, "10.0.0.1"), change: with(newAPIServer(t, old, old), nil),
			want: []string{"apiserver-not-asked: kube-apiserver runs on 2 hosts, and only 1 can be asked: not on 1 of cp-1, cp-2"},
		},
		"NoJWKS": {
			reason:  "the issuer is no https URL",
			objects: ha, change: with(newAPIServer(t, old, old, next), newAPIServer(t, old)),
			wantErr: second + ": read kube-apiserver's keys at /openid/v1/jwks",
		},
	})
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/controllers/keyring/hosts"
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
		encoded := testutil.Get(signing.MarshalJWKS(public))(t)
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
	token := testutil.Get(tokens.NewIssuer(key, tokens.CompatClaims).Legacy(t.Context(),
		tokens.Account{Namespace: "kube-system", Name: "default", UID: "1"}, "x"))(t)
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
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: hosts.SecretName},
		Data: map[string][]byte{"schema-version": []byte("1"), "host.cp-1": fmt.Appendf(nil,
			`{"generation":3,"history":["v"],"keys":{%q:"active",%q:"retired"},"signsWith":%q,"signer":true}`, next.ID(), old.ID(),
			next.ID())},
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
			reason: "it hides nothing about the others", objects: append(ha, published), change: with(newAPIServer(t, old, old), down),
			want: []string{"key-not-accepted: it lacks the key with which the process on host cp-1 signs"}, wantErr: second + ": ",
		},
		"OtherCluster": {
			reason:  "the remedy had every kube-apiserver accept the keys of another cluster",
			objects: append(ha, mixed), change: with(newAPIServer(t, next, old, next), newAPIServer(t, next, old, next)),
		},
		"OwnKey": {
			reason: "the second one has a key of its own", objects: ha,
			change: with(newAPIServer(t, old, old), newAPIServer(t, next, old, next)),
			want:   []string{"key-not-accepted: it lacks the key with which the kube-apiserver at https://10.0.0.2:6443 signs"},
		},
		"NotReached": {
			reason:  "only one address is known",
			objects: controlPlane([]string{"cp-1", "cp-2"}, "10.0.0.1"), change: with(newAPIServer(t, old, old), nil),
			want: []string{"apiserver-not-asked: kube-apiserver runs on 2 hosts, and only 1 can be asked: not on 1 of cp-1, cp-2"},
		},
		"NoJWKS": {
			reason: "the issuer is no https URL", objects: ha, change: with(newAPIServer(t, old, old, next), newAPIServer(t, old)),
			wantErr: second + ": read kube-apiserver's keys at /openid/v1/jwks",
		},
	})
}

// mirrorPod is a component of the control plane on node cp.
func mirrorPod(component string, flags ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "kube-system", Name: component + "-cp", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"},
		},
		Spec: corev1.PodSpec{NodeName: "cp", Containers: []corev1.Container{{Command: append([]string{component}, flags...)}}},
	}
}

// inVersion is a kube-apiserver of a version.
func inVersion(version string, flags ...string) *corev1.Pod {
	pod := mirrorPod("kube-apiserver", flags...)
	pod.Spec.Containers[0].Image = "registry.k8s.io/kube-apiserver:" + version
	return pod
}

// ours is our static pod with a mode of registration.
func ours(mode string) *corev1.Pod {
	return mirrorPod("sa-controller-manager", "--webhook-registration="+mode)
}

// leasing gives the cluster a Lease inside the bubble, where the time is another one.
func leasing(holder string, renewed time.Duration) func(*testing.T, *cluster, *fake.Clientset) {
	return func(t *testing.T, _ *cluster, client *fake.Clientset) {
		t.Helper()
		testutil.Must(t, client.Tracker().Add(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "sa-controller-manager"},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: &holder, LeaseDurationSeconds: new(int32(15)),
				RenewTime: new(metav1.NewMicroTime(time.Now().Add(-renewed))),
			},
		}))
	}
}

func TestControlPlane(t *testing.T) {
	t.Parallel()
	server, kcm := mirrorPod("kube-apiserver"), mirrorPod("kube-controller-manager", "--controllers=*,-serviceaccount-controller",
		"--service-account-private-key-file=sa.key")
	bound := append(registered("mutate.sa-controller-manager.webhook", nil), server, kcm)
	const off = "--controllers=-serviceaccount-controller,-root-ca-certificate-publisher-controller"
	const idle = "the webhook is not bound, and no replica leads"
	try(t, "control-plane", map[string]checkCase{
		"NoTakeover": {
			reason: "there was no takeover, so stock is right", skipped: idle,
			objects: []runtime.Object{server, mirrorPod("kube-controller-manager")},
		},
		"NoPods": {
			reason: "they are no static pods", objects: registered("mutate.sa-controller-manager.webhook", nil),
			skipped: "no static pods of kube-apiserver and kube-controller-manager",
		},
		"Good": {
			reason: "the takeover has reached both", objects: append(registered("mutate.sa-controller-manager.webhook", nil),
				mirrorPod("kube-apiserver", "--disable-admission-plugins=ServiceAccount")),
		},
		"Server": {
			reason: "the upgrade had no patches", objects: bound,
			want: []string{"controller-nowhere: serviceaccount-controller", "apiserver-stock: kube-apiserver-cp"},
		},
		"Manager": {
			reason: "both would write", objects: []runtime.Object{kcm}, change: leasing("a", time.Second),
			want: []string{"controller-manager-stock: kube-controller-manager-cp (root-ca-certificate-publisher-controller, " +
				"legacy-serviceaccount-token-cleaner-controller, serviceaccount-token-controller)"},
		},
		"FromFiles": {
			reason:  "the takeover has reached both",
			objects: []runtime.Object{inVersion("v1.37.2", "--disable-admission-plugins=ServiceAccount"), ours("static")},
			change:  leasing("a", time.Second),
		},
		"ServerBesideFiles": {
			reason: "the upgrade had no patches", objects: []runtime.Object{inVersion("v1.37.2"), ours("static")},
			change: leasing("a", time.Second),
			want:   []string{"apiserver-stock: kube-apiserver-cp"},
		},
		"LeftToIt": {
			reason: "one of the two runs it", change: leasing("a", time.Second), objects: []runtime.Object{
				mirrorPod("kube-controller-manager",
					"--controllers=legacy-service-account-token-cleaner,serviceaccount,root-ca-cert-publisher"),
				mirrorPod("sa-controller-manager", "--controllers=serviceaccount-token-controller"),
			},
		},
		"Nowhere": {
			reason: "a takeover of one of several before v1.37", objects: []runtime.Object{inVersion("v1.37.2"), ours("none")},
			change: leasing("a", time.Second),
		},
		"Released": {
			reason: "our controllers do not run", objects: []runtime.Object{kcm}, change: leasing("", time.Second),
			want: []string{"controller-nowhere: serviceaccount-controller"},
		},
		"Expired": {
			reason: "our controllers do not run", objects: []runtime.Object{kcm}, change: leasing("a", 16*time.Second),
			want: []string{"controller-nowhere: serviceaccount-controller"},
		},
		"OffInOursToo": {
			reason: "our manifest was made from a manifest with our own lines", objects: []runtime.Object{
				mirrorPod("kube-controller-manager", off),
				mirrorPod("sa-controller-manager", "--controllers=*,"+strings.TrimPrefix(off, "--controllers=")),
			},
			change: leasing("a", time.Second),
			want:   []string{"controller-nowhere: serviceaccount-controller, root-ca-certificate-publisher-controller"},
		},
		"AfterAnIncompleteHandback": {
			reason: "nothing of ours is there", objects: []runtime.Object{server, mirrorPod("kube-controller-manager", off)},
			want: []string{"controller-nowhere: serviceaccount-controller, root-ca-certificate-publisher-controller"},
		},
		"Ahead": {
			reason: "clocks differ a little", objects: []runtime.Object{mirrorPod("kube-controller-manager", off), ours("none")},
			change: leasing("a", -time.Minute),
		},
		"InTheFuture": {
			reason: "nobody may lead", objects: []runtime.Object{kcm}, change: leasing("a", -61*time.Second),
			wantErr: "which is in the future: it is not known whether a replica leads",
		},
		"NoLease": {
			reason: "an error is no finding", change: failing("get", "leases"),
			wantErr: "read the Lease kube-system/sa-controller-manager: the API is down",
		},
		"Down": {reason: "not asked", change: failing("list", "pods"), wantErr: "list the Pods of kube-system: the API is down"},
	})
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/test/integration/faultproxy"
)

func TestJudgeWrites(t *testing.T) {
	t.Parallel()
	begun := time.Unix(1000, 0)
	at := func(seconds float64, r faultproxy.Request) faultproxy.Request {
		r.Began = begun.Add(time.Duration(seconds * float64(time.Second)))
		return r
	}
	renewal := faultproxy.Request{Verb: "update", Resource: "leases", Name: workload.LeaseName, Code: 200, Served: 200}
	lost := faultproxy.Request{Verb: "update", Resource: "leases", Name: workload.LeaseName, Code: 0, Served: 200}
	write := faultproxy.Request{Verb: "patch", Resource: "secrets", Namespace: "shop", Name: "s", Served: 200}
	leaders := func(verb, resource, namespace, name string) faultproxy.Request {
		return faultproxy.Request{Verb: verb, Resource: resource, Namespace: namespace, Name: name, Served: 200}
	}
	const deadline = 3 * time.Second
	cases := map[string]struct {
		reason  string
		journal []faultproxy.Request
		want    int
	}{
		"InTime": {journal: []faultproxy.Request{at(0, renewal), at(2.9, write)}},
		"Late":   {journal: []faultproxy.Request{at(0, renewal), at(3.4, write)}, want: 1},
		"RenewalUnseen": {
			reason: "the process never had the answer", journal: []faultproxy.Request{at(0, renewal), at(2, lost), at(4.5, write)}, want: 1,
		},
		"PatchAtAPause": {reason: "its precondition held", journal: []faultproxy.Request{at(0, renewal), at(8.05, write)}, want: 1},
		"AfterAPause": {
			reason:  "it asked afterwards",
			journal: []faultproxy.Request{at(0, renewal), at(8.6, leaders("create", "configmaps", "shop", ""))},
			want:    1,
		},
		"NeverLed": {journal: []faultproxy.Request{at(0, write)}, want: 1},

		"Account": {
			reason: "nobody waits for it", journal: []faultproxy.Request{at(0, leaders("create", "serviceaccounts", "shop", ""))}, want: 1,
		},
		"Reference": {journal: []faultproxy.Request{at(0, leaders("patch", "serviceaccounts", "pods", "default"))}, want: 1},
		"Mutating": {
			journal: []faultproxy.Request{at(0, leaders("update", "mutatingwebhookconfigurations", "", workload.ConfigurationName))},
			want:    1,
		},
		"Validating": {journal: []faultproxy.Request{at(0, leaders("create", "validatingwebhookconfigurations", "", ""))}, want: 1},
		"RootCA": {
			journal: []faultproxy.Request{at(0, leaders("update", "configmaps", "kube-system", workload.RootCAConfigMap))}, want: 1,
		},
		"StateOfRootCA": {
			journal: []faultproxy.Request{at(0, leaders("update", "secrets", "kube-system", "sa-controller-manager-root-ca"))}, want: 1,
		},
		"ConfigMap": {journal: []faultproxy.Request{at(0, leaders("create", "configmaps", "kube-system", ""))}, want: 1},
		"TokenOfTheSystem": {
			journal: []faultproxy.Request{at(0, leaders("patch", "secrets", "kube-system", "default-token-abcde"))}, want: 1,
		},
	}
	asked := PodNamespaces([]workload.Call{{Namespace: "pods"}})
	resumed := []time.Time{begun.Add(8 * time.Second)}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, found := JudgeWrites(tc.journal, deadline, asked, resumed)
			testutil.Expect(t, len(found) == tc.want, "%s: %v, want %d", tc.reason, found, tc.want)
		})
	}
}

func TestJudgeCall(t *testing.T) {
	t.Parallel()
	begun := time.Unix(1000, 0)
	second := func(n int) time.Time { return begun.Add(time.Duration(n) * time.Second) }
	refused, bare := errors.New("refused"), "token"
	for name, tc := range map[string]struct {
		reason  string
		call    workload.Call
		excuses []*Interval
		want    bool // something is wrong
	}{
		"Admitted": {call: workload.Call{Begun: second(0), Ended: second(1)}},
		"Refused":  {call: workload.Call{Begun: second(0), Ended: second(1), Err: refused}, want: true},
		"Bare":     {call: workload.Call{Begun: second(0), Ended: second(1), Lacks: bare}, want: true},
		"Excused": {
			call:    workload.Call{Begun: second(5), Ended: second(6), Err: refused},
			excuses: []*Interval{{From: second(4), To: second(9), Excuse: Refused}},
		},
		"LongAfter": {
			call:    workload.Call{Begun: second(14), Ended: second(15), Err: refused},
			excuses: []*Interval{{From: second(4), To: second(9), Excuse: Refused}}, want: true,
		},
		"BareWhileRefused": {
			reason: "nobody has taken the webhook out", call: workload.Call{Begun: second(5), Ended: second(6), Lacks: bare},
			excuses: []*Interval{{From: second(4), To: second(9), Excuse: Refused}}, want: true,
		},
		"NotFresh": {
			call:    workload.Call{Begun: second(5), Ended: second(6), Err: refused},
			excuses: []*Interval{{From: second(4), To: second(9), Excuse: FreshRefused}}, want: true,
		},
		"UnwantedAndAdmitted": {call: workload.Call{Begun: second(0), Ended: second(1), Unwanted: true}, want: true},
		"UnwantedWhileRefused": {
			reason: "nothing else may let it in", call: workload.Call{Begun: second(5), Ended: second(6), Unwanted: true},
			excuses: []*Interval{{From: second(4), To: second(9), Excuse: Refused}}, want: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := JudgeCall(tc.call, tc.excuses)
			testutil.Expect(t, (got != "") == tc.want, "%s: %q", tc.reason, got)
		})
	}
}

func TestJudgeReissue(t *testing.T) {
	t.Parallel()
	const active, former = "active", "retired"
	// secret is one of account "app" that a token controller made. replaces is the name of another one.
	secret := func(name, token, replaces string) *corev1.Secret {
		s := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: name, UID: types.UID("uid-" + name),
				Labels:      map[string]string{workload.AutoCreatedLabel: "true"},
				Annotations: map[string]string{corev1.ServiceAccountUIDKey: "app-uid", corev1.ServiceAccountNameKey: "app"},
			},
			Type: corev1.SecretTypeServiceAccountToken,
			Data: map[string][]byte{corev1.ServiceAccountTokenKey: []byte(token)},
		}
		if replaces != "" {
			s.Annotations[workload.ReplacesLabel] = replaces + "/uid-" + replaces
		}
		return s
	}
	for name, tc := range map[string]struct {
		reason     string
		secrets    []*corev1.Secret
		references []string
		want       int
	}{
		"NothingRotated": {secrets: []*corev1.Secret{secret("a", active, "")}, references: []string{"a"}},

		"NotReplaced": {secrets: []*corev1.Secret{secret("a", former, "")}, references: []string{"a"}, want: 2},
		"NotLed":      {secrets: []*corev1.Secret{secret("a", former, ""), secret("b", active, "a")}, references: []string{"a"}, want: 1},
		"LedSecond": {
			secrets: []*corev1.Secret{secret("a", former, ""), secret("b", active, "a")}, references: []string{"a", "b"}, want: 1,
		},
		"ReplacedByTwo": {
			secrets:    []*corev1.Secret{secret("a", former, ""), secret("b", active, "a"), secret("c", active, "a")},
			references: []string{"b", "a"},
			want:       1,
		},
		"AnotherUID": {
			reason: "what was replaced is another one of that name",
			secrets: []*corev1.Secret{secret("a", former, ""), func() *corev1.Secret {
				s := secret("b", active, "a")
				s.Annotations[workload.ReplacesLabel] = "a/uid-older"
				return s
			}()},
			references: []string{"b", "a"}, want: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "app", UID: "app-uid"}}
			for _, reference := range tc.references {
				account.Secrets = append(account.Secrets, corev1.ObjectReference{Name: reference})
			}
			now := Snapshot{
				Accounts: map[types.NamespacedName]*corev1.ServiceAccount{Key("shop", "app"): account},
				Secrets:  map[types.NamespacedName]*corev1.Secret{},
			}
			for _, secret := range tc.secrets {
				now.Secrets[Key("shop", secret.Name)] = secret
			}
			found, _ := JudgeReissue(now, workload.Model{}, func(token string) bool { return token == former })
			testutil.Expect(t, len(found) == tc.want && len(Of(found, 3)) == tc.want, "%s: %v, want %d of promise 3", tc.reason, found,
				tc.want)
		})
	}
}

// TestKeyRing wants every token to be found out that no key of the ring has signed.
func TestKeyRing(t *testing.T) {
	t.Parallel()
	active, retired, other := newKey(t), newKey(t), newKey(t)
	ring := &KeyRing{Keys: map[string]crypto.PublicKey{}, Active: idOf(t, active)}
	for _, key := range []*ecdsa.PrivateKey{active, retired} {
		ring.Keys[idOf(t, key)] = key.Public()
	}
	for name, tc := range map[string]struct {
		reason, token string
		good          bool
	}{
		"Active":       {token: signedBy(t, active, "ES256", idOf(t, active)), good: true},
		"Retired":      {token: signedBy(t, retired, "ES256", idOf(t, retired)), good: true},
		"Stranger":     {reason: "the ring does not have it", token: signedBy(t, other, "ES256", idOf(t, other))},
		"AnothersName": {reason: "the key ID is not its own", token: signedBy(t, other, "ES256", idOf(t, active))},
		"NoKeyID":      {token: signedBy(t, active, "ES256", "")},
		"Algorithm":    {reason: "the hash is not that of the curve", token: signedBy(t, active, "RS256", idOf(t, active))},
		"NoToken":      {token: "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := ring.Verify(tc.token)
			testutil.Expect(t, (err == nil) == tc.good, "%s: verify: %v, want good: %t", tc.reason, err, tc.good)
		})
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	return testutil.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
}

func idOf(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	der := testutil.Get(x509.MarshalPKIXPublicKey(key.Public()))(t)
	return KeyIDOf(der)
}

// signedBy is a token with an empty payload. The signature is that of the key, whatever the header
// says.
func signedBy(t *testing.T, key *ecdsa.PrivateKey, algorithm, id string) string {
	t.Helper()
	header := testutil.Get(json.Marshal(map[string]string{"alg": algorithm, "kid": id}))(t)
	signed := base64.RawURLEncoding.EncodeToString(header) + ".e30"
	r, s, err := ecdsa.Sign(rand.Reader, key, hashed(crypto.SHA256, signed))
	testutil.Must(t, err)
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	_ "crypto/sha256" // crypto.SHA256
	_ "crypto/sha512" // crypto.SHA384
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/test/integration/faultproxy"
)

// KeyRing are the public ECDSA keys with which tokens have to verify, by key ID.
type KeyRing struct {
	Keys map[string]crypto.PublicKey
	// Active is the ID of the one that signs, "" if it is all the same which one does. The others are retired.
	Active string
}

// SignedWith is the ID of the key that the token names, "" if it is none.
func SignedWith(token string) string {
	var header struct {
		KeyID string `json:"kid"`
	}
	readSegment(strings.Split(token, ".")[0], &header)
	return header.KeyID
}

// Verify says what is wrong with the signature of a token. It goes by the standard library alone.
func (k *KeyRing) Verify(token string) error {
	var header struct {
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 || !readSegment(parts[0], &header) {
		return errors.New("it holds no token")
	}
	signed := parts[0] + "." + parts[1]
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return errors.New("its signature is not base64url")
	}
	key, known := k.Keys[header.KeyID].(*ecdsa.PublicKey)
	hash := map[string]crypto.Hash{"ES256": crypto.SHA256, "ES384": crypto.SHA384}[header.Algorithm]
	if !known || hash == 0 || !verifies(key, hash, signed, signature) {
		return errors.New("no key of the ring has signed its token")
	}
	return nil
}

// verifies takes a signature as JWTs have it: r and s, each as long as the curve's order (RFC 7518 section 3.4).
func verifies(key *ecdsa.PublicKey, hash crypto.Hash, signed string, signature []byte) bool {
	size := (key.Curve.Params().BitSize + 7) / 8
	if len(signature) != 2*size {
		return false
	}
	digest := hash.New()
	digest.Write([]byte(signed))
	r, s := new(big.Int).SetBytes(signature[:size]), new(big.Int).SetBytes(signature[size:])
	return ecdsa.Verify(key, digest.Sum(nil), r, s)
}

// Key is the name of an object as the maps of a Snapshot have it.
func Key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// Sorted are the values in the order of their keys, so that equal snapshots give equal
// judgements.
func Sorted[T any](objects map[types.NamespacedName]T) []T {
	keys := slices.SortedFunc(maps.Keys(objects), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	values := make([]T, 0, len(keys))
	for _, key := range keys {
		values = append(values, objects[key])
	}
	return values
}

func (j *judge) active(namespace string) bool {
	return slices.ContainsFunc(j.now.Namespaces, func(n corev1.Namespace) bool {
		return n.Name == namespace && n.Status.Phase == corev1.NamespaceActive
	})
}

// WrittenByTokenControllers reports whether managedFields name token controllers, and nobody else,
// as those who wrote the entry of the list.
func WrittenByTokenControllers(account *corev1.ServiceAccount, secret string) bool {
	written := false
	for _, entry := range account.ManagedFields {
		if entry.FieldsV1 == nil || !strings.Contains(string(entry.FieldsV1.GetRawBytes()), `k:{\"name\":\"`+secret+`\"}`) {
			continue
		}
		if entry.Manager != workload.ProductManager && entry.Manager != "kube-controller-manager" {
			return false
		}
		written = true
	}
	return written
}

func managersOf(object metav1.Object) []string {
	var managers []string
	for _, entry := range object.GetManagedFields() {
		managers = append(managers, entry.Manager)
	}
	return managers
}

// ClaimedUID reads a token without verifying it; "" if it is none.
func ClaimedUID(token string) types.UID {
	var claims struct {
		UID types.UID `json:"kubernetes.io/serviceaccount/service-account.uid"`
	}
	if !ReadClaims(token, &claims) {
		return ""
	}
	return claims.UID
}

// ReadClaims reads those of a token without verifying it, and reports whether it is one.
func ReadClaims(token string, into any) bool {
	parts := strings.Split(token, ".")
	return len(parts) == 3 && readSegment(parts[1], into)
}

// readSegment reads the header or the payload of a token, and reports whether it is one.
func readSegment(encoded string, into any) bool {
	decoded, err := base64.RawURLEncoding.DecodeString(encoded)
	return err == nil && json.NewDecoder(bytes.NewReader(decoded)).Decode(into) == nil
}

// transit is what a request may take from the process to its proxy, less what the renewal
// before it took. Of 6500 writes of race-enabled leaders, in three runs on two busy cores,
// none that kube-apiserver took came less than 150 ms before the deadline; without the
// fence one comes each 200 ms after it.
const transit = 300 * time.Millisecond

// onItsWay is how soon after a pause a request comes that had asked the fence before it: what
// is left to do is to write it to a connection, after all timers that have run out.
const onItsWay = 500 * time.Millisecond

// JudgeWrites goes through the journal of one process's proxy, in the order in which
// requests came, and returns what it wrote as a leader that was none any more. writes is
// how many there were. It counts from the beginning of each renewal that was answered
// well, as the process itself has to. resumed is when the process went on after a pause: no
// process can tell that it will be stopped. What it creates then is what the next leader would
// create, or collapses; everything else has a precondition, and is not excused if that held.
func JudgeWrites(journal []faultproxy.Request, deadline time.Duration, asked func(namespace string) bool,
	resumed []time.Time) (writes int, found []Violation) {
	var renewed time.Time
	for _, r := range journal {
		if r.Resource == "leases" && r.Name == workload.LeaseName || r.Resource == "leases" && r.Verb == "create" {
			if (r.Verb == "update" || r.Verb == "create") && r.Code/100 == 2 {
				renewed = r.Began
			}
			continue
		}
		if !leaderWrites(r, asked) {
			continue
		}
		writes++
		if late := r.Began.Sub(renewed.Add(deadline + transit)); late > 0 && r.Served/100 == 2 &&
			!(r.Verb == "create" && justAfter(r.Began, resumed)) {
			found = append(found,
				Violated(9, "%s began %s after the renew deadline, and kube-apiserver took it", describe(r), lateness(renewed, late)))
		}
	}
	return writes, found
}

func justAfter(at time.Time, pauses []time.Time) bool {
	return slices.ContainsFunc(pauses, func(end time.Time) bool {
		since := at.Sub(end)
		return since >= 0 && since < onItsWay
	})
}

func lateness(renewed time.Time, late time.Duration) string {
	if renewed.IsZero() {
		return "without a lease, so any time"
	}
	return (late + transit).Round(time.Millisecond).String()
}

func describe(r faultproxy.Request) string {
	return fmt.Sprintf("%s %s %s/%s", r.Verb, r.Resource, r.Namespace, r.Name)
}

// leaderWrites selects what only a leader may write. asked tells in which namespaces
// a client may have created a Pod.
//
// Left out is what any replica may write: its Lease, Events, reviews, the serving CA's
// Secret and its line of the published key ring. A Secret that is created in kube-system may
// be the serving CA's, because the path of a creation has no name. Pods are only created
// with dryRun. A lease that was given away counts as renewed: no body is in the journal.
func leaderWrites(r faultproxy.Request, asked func(namespace string) bool) bool {
	if r.Verb == "get" || r.Verb == "list" || r.Verb == "watch" || r.Subresource != "" {
		return false
	}
	switch r.Resource {
	case "mutatingwebhookconfigurations", "validatingwebhookconfigurations", "configmaps":
		return true
	case "secrets":
		// Every replica publishes its key ring in one.
		return r.Namespace != metav1.NamespaceSystem || r.Verb != "create" && r.Name != workload.CASecretName &&
			r.Name != workload.KeyRingSecret
	case "serviceaccounts":
		// Any replica may create the account that a Pod waits for, and nothing in such a
		// request is different. Where nobody asks for a Pod, nobody waits.
		return r.Verb != "create" || !asked(r.Namespace)
	}
	return false
}

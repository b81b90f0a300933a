// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/printers"
)

// probeSeconds is the lifetime of the token: the shortest that kube-apiserver issues.
const probeSeconds = 600

var (
	freshRefused = check.Fact{
		Code: "fresh-token-refused", Message: "kube-apiserver refuses a token of {account} that it has just issued",
		Cost: "Pods get 401",
		Remedy: "give every kube-apiserver the same --service-account-issuer and, with --service-account-key-file, " +
			"the public keys of the --service-account-signing-key-file of all of them; then restart it",
	}
	secretKeyUnknown = check.Fact{
		Code: "secret-key-unknown", Message: "kube-apiserver does not know the keys of tokens in Secrets", Cost: "it refuses them",
		Remedy: "give every kube-apiserver the public key again with --service-account-key-file, and restart it. " +
			"If a key was removed on purpose, create new Secrets in place of these",
	}
)

// checkToken checks a bound token and the keys of legacy tokens.
func (c *cluster) checkToken(ctx context.Context) (found check.Result, err error) {
	if found.Findings, err = c.tryBoundToken(ctx); err != nil {
		return found, err
	}
	ids, err := c.knownKeyIDs(ctx)
	if err != nil {
		return found, err
	}
	rings, err := hosts.Fetch(ctx, c.Client)
	if err != nil {
		return found, err
	}
	secrets, err := c.tokenSecrets(ctx)
	found.Note = fmt.Sprintf("tried a fresh token of %s/%s; keys that kube-apiserver verifies with: %d", c.Namespace, c.Account, len(ids))
	strange, unknown := sets.New[string](), []string(nil) // of any number of keys: who may write a Secret chooses them
	for _, secret := range secrets {
		if secret.Token == nil || secret.Terminating() {
			continue
		}
		// For a token without a key ID kube-apiserver tries every key. It must not have a revoked one.
		if id := secret.Token.KeyID(); id != "" && !ids.Has(id) && !rings.RevokedID(id) {
			unknown = append(unknown, secret.name())
			strange.Insert(id)
		}
	}
	why := printers.Shorten(sets.List(strange), len(strange))
	found.Findings = append(found.Findings, secretKeyUnknown.Found().Because(why).About(unknown)...)
	return found, err
}

// tryBoundToken has kube-apiserver issue a token and then accept it.
func (c *cluster) tryBoundToken(ctx context.Context) ([]check.Finding, error) {
	name := c.Namespace + "/" + c.Account
	request, err := c.Client.CoreV1().ServiceAccounts(c.Namespace).CreateToken(ctx, c.Account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(probeSeconds))},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request a token of service account %s: %w", name, err)
	}
	review, err := c.Client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: request.Status.Token},
	}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("have a token of service account %s reviewed: %w", name, err)
	}
	if review.Status.Authenticated {
		return nil, nil
	}
	return []check.Finding{freshRefused.Found("{account}", name).Because(cmp.Or(review.Status.Error, "no reason given"))}, nil
}

// knownKeyIDs returns the IDs of the keys with which kube-apiserver verifies tokens.
func (c *cluster) knownKeyIDs(ctx context.Context) (sets.Set[string], error) {
	return c.facts.keyIDs.get(ctx, func(ctx context.Context) (sets.Set[string], error) { return publishedIDs(ctx, c.Get) })
}

// publishedIDs are those of the keys of a kube-apiserver, which get asks for a path.
func publishedIDs(ctx context.Context, get func(context.Context, string) ([]byte, error)) (sets.Set[string], error) {
	published, err := keyprobe.PublishedKeys(ctx, get)
	ids := sets.New[string]()
	for _, key := range published {
		ids.Insert(key.ID)
	}
	return ids, err
}

// lacking finds the wanted keys, with what has each, that a kube-apiserver does not have. It may have more, such as its
// own for bound tokens.
func lacking(server string, ids sets.Set[string], wanted map[string]string) (findings []check.Finding) {
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		if !ids.Has(id) {
			findings = append(findings, keyprobe.Refusal(server, id, "it lacks the key "+wanted[id]))
		}
	}
	return findings
}

// checkKeys compares key files with the keys of kube-apiserver.
func (c *cluster) checkKeys(ctx context.Context) (check.Result, error) {
	if len(c.Keys) == 0 {
		return check.Skip("no --service-account-private-key-file, --service-account-key-ring or --service-account-key-file"), nil
	}
	ids, err := c.knownKeyIDs(ctx)
	if err != nil {
		return check.Result{}, err
	}
	rings, err := hosts.Fetch(ctx, c.Client)
	if err != nil {
		return check.Result{}, err
	}
	wanted, stands := map[string]string{}, hosts.Stand(hosts.File{}, rings)
	for _, key := range c.Keys {
		strange := key.Origin == "--"+options.KeyRingFlag && len(rings.Entries) > 0 && !stands.Has(key.ID)
		if !strange && !rings.Removed.Has(key.PublicKey) { // kube-apiserver must not get those
			wanted[key.ID] = "of " + key.Origin
		}
	}
	return check.Result{Findings: lacking("kube-apiserver", ids, wanted), Note: fmt.Sprintf("keys compared: %d", len(wanted))}, nil
}

// checkKeyRings finds hosts whose key ring lacks a key of the newest one, or was restored.
func (c *cluster) checkKeyRings(ctx context.Context) (check.Result, error) {
	rings, err := hosts.Refresh(ctx, c.Client, false)
	if err != nil {
		return check.Result{}, err
	}
	if len(rings.Entries) == 0 {
		return check.Skip("no key ring"), nil
	}
	findings := hosts.Stand(hosts.File{}, rings).Findings(c.Clock.Now())
	return check.Result{Note: fmt.Sprintf("key rings: %d", len(rings.Entries)), Findings: findings}, nil
}

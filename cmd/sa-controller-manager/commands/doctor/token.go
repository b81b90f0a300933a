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
)

// probeSeconds is the lifetime of the token: the shortest that kube-apiserver issues.
const probeSeconds = 600

const fixRefused = "give every kube-apiserver the same --service-account-issuer and, with --service-account-key-file, " +
	"the public keys of the --service-account-signing-key-file of all of them; then restart it"

const fixUnknownKey = "give every kube-apiserver the public key again with --service-account-key-file, and restart it. " +
	"If the key was removed on purpose, create new Secrets in place of these"

// checkToken checks a bound token and the keys of legacy tokens.
func checkToken(ctx context.Context, c *cluster) (answer, error) {
	findings, err := tryBoundToken(ctx, c)
	if err != nil {
		return answer{}, err
	}
	answer := answer{Findings: findings}
	ids, err := c.knownKeyIDs(ctx)
	if err != nil {
		return answer, err
	}
	secrets, err := c.tokenSecrets(ctx)
	if err != nil {
		return answer, err
	}
	answer.Findings = append(answer.Findings, unknownKeys(secrets, ids)...)
	answer.Note = fmt.Sprintf("tried a fresh token of %s/%s; keys that kube-apiserver verifies with: %d", c.Namespace, c.Account, len(ids))
	return answer, nil
}

// tryBoundToken has kube-apiserver issue a token and then accept it.
func tryBoundToken(ctx context.Context, c *cluster) ([]finding, error) {
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
	why := cmp.Or(review.Status.Error, "no reason given")
	return []finding{found("fresh-token-refused", fmt.Sprintf("kube-apiserver refuses a token of %s that it has just issued: %s", name, why),
		fixRefused)}, nil
}

// unknownKeys finds tokens that kube-apiserver refuses because of their key, with one finding for
// each key. It skips tokens without a key ID, because kube-apiserver tries every key for them.
func unknownKeys(secrets []tokenSecret, known sets.Set[string]) []finding {
	byKey := map[string][]string{}
	for _, secret := range secrets {
		if secret.Token == nil || secret.Token.KeyID() == "" || secret.Terminating() || known.Has(secret.Token.KeyID()) {
			continue
		}
		byKey[secret.Token.KeyID()] = append(byKey[secret.Token.KeyID()], secret.name())
	}
	var findings []finding
	for _, id := range slices.Sorted(maps.Keys(byKey)) {
		problem := "token Secrets with a token of key " + id + ", which kube-apiserver does not know: it refuses them"
		findings = append(findings, found("secret-key-unknown", problem, fixUnknownKey, byKey[id]...))
	}
	return findings
}

// checkKeys compares key files with the keys of kube-apiserver, which may have more, such as its
// own for bound tokens.
func checkKeys(ctx context.Context, c *cluster) (answer, error) {
	if len(c.Keys) == 0 {
		return skipped("no --service-account-private-key-file, --service-account-key-ring or --service-account-key-file"), nil
	}
	ids, err := c.knownKeyIDs(ctx)
	if err != nil {
		return answer{}, err
	}
	answer := answer{Note: fmt.Sprintf("keys compared: %d", len(c.Keys))}
	for _, key := range c.Keys {
		if !ids.Has(key.ID) {
			answer.Findings = append(answer.Findings, found("key-unknown",
				fmt.Sprintf("kube-apiserver does not know key %s of %s: it refuses the tokens that are signed with it", key.ID, key.Origin),
				"give every kube-apiserver its public key with --service-account-key-file, beside the other keys, and restart it"))
		}
	}
	return answer, nil
}

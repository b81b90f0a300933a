// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"sa-controller-manager/tokens/internal/claims"
)

// LegacyIssuer is the iss claim of every legacy token (k8s.io/kubernetes
// pkg/serviceaccount/legacy.go). kube-apiserver tells legacy and bound tokens apart by it.
const LegacyIssuer = "kubernetes/serviceaccount"

// ClaimStyle selects the claims of legacy tokens.
type ClaimStyle string

const (
	// CompatClaims selects exactly the claims of kube-controller-manager. None of them varies, so
	// with an RSA key a Secret that is deleted and created again under the same name, for the same
	// account UID, gets the same token.
	CompatClaims ClaimStyle = "compat"
	// UniqueClaims adds iat and jti, so that all tokens differ and the deletion of a Secret revokes
	// its token for good. kube-apiserver ignores both claims in a legacy token.
	UniqueClaims ClaimStyle = "unique"
)

// Account identifies a ServiceAccount. The UID distinguishes it from earlier and later accounts of
// the same name.
type Account struct{ Namespace, Name, UID string }

// Subject returns the sub claim, which is the user name of the account.
func (a Account) Subject() string { return "system:serviceaccount:" + a.Namespace + ":" + a.Name }

// check returns an error if no valid token can be issued for the account. A colon, which the API
// does not allow in names, would make the subject ambiguous.
func (a Account) check() error {
	for _, part := range []struct{ name, value string }{
		{"namespace", a.Namespace}, {"service account name", a.Name}, {"service account UID", a.UID},
	} {
		if part.value == "" {
			return fmt.Errorf("the %s is empty", part.name)
		}
	}
	if strings.Contains(a.Namespace, ":") || strings.Contains(a.Name, ":") {
		return fmt.Errorf("namespace %q or service account name %q contains a colon", a.Namespace, a.Name)
	}
	return nil
}

// legacyClaims are the claims of a legacy token, in alphabetical order, as go-jose writes a map.
// With CompatClaims iat and jti are absent.
type legacyClaims struct {
	IssuedAt    int64  `json:"iat,omitempty"` // seconds since the epoch, rounded down
	Issuer      string `json:"iss"`
	TokenID     string `json:"jti,omitempty"`
	Namespace   string `json:"kubernetes.io/serviceaccount/namespace"`
	SecretName  string `json:"kubernetes.io/serviceaccount/secret.name"`
	AccountName string `json:"kubernetes.io/serviceaccount/service-account.name"`
	AccountUID  string `json:"kubernetes.io/serviceaccount/service-account.uid"`
	Subject     string `json:"sub"`
}

func newLegacyClaims(account Account, secretName string) legacyClaims {
	return legacyClaims{
		Issuer:      LegacyIssuer,
		Namespace:   account.Namespace,
		SecretName:  secretName,
		AccountName: account.Name,
		AccountUID:  account.UID,
		Subject:     account.Subject(),
	}
}

// boundClaims returns the claims of a token that is bound to its account only, like those of a
// TokenRequest without a bound object (k8s.io/kubernetes pkg/serviceaccount/claims.go). Times are
// whole seconds since the epoch, rounded down.
func boundClaims(request BoundRequest, now time.Time, tokenID string) map[string]any {
	return map[string]any{
		claims.Issuer:   request.Issuer,
		claims.Subject:  request.Account.Subject(),
		claims.IssuedAt: now.Add(-request.Skew).Unix(),
		claims.TokenID:  tokenID,
		claims.Audience: request.Audiences,
		"nbf":           now.Add(-request.Skew).Unix(),
		"exp":           now.Add(request.Lifetime + request.Skew).Unix(),
		claims.Kubernetes: map[string]any{
			"namespace": request.Account.Namespace,
			"serviceaccount": map[string]string{
				"name": request.Account.Name,
				"uid":  request.Account.UID,
			},
		},
	}
}

// encodePayload returns claims, a map or a struct with sorted members, as a payload segment: JSON
// without white space, with <, > and & escaped, in unpadded base64url. go-jose encodes a map in the
// same way, so our RS256 tokens equal those of kube-controller-manager byte for byte.
func encodePayload(claims any) (string, error) {
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("encode claims: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(payload), nil
}

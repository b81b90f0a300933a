// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// LegacyIssuer is the iss claim of every legacy token (k8s.io/kubernetes
// pkg/serviceaccount/legacy.go). The apiserver tells legacy tokens from bound ones by it.
const LegacyIssuer = "kubernetes/serviceaccount"

// Names of the claims of a legacy token, as k8s.io/kubernetes pkg/serviceaccount/legacy.go has
// them.
const (
	claimIssuer      = "iss"
	claimSubject     = "sub"
	claimNamespace   = "kubernetes.io/serviceaccount/namespace"
	claimSecretName  = "kubernetes.io/serviceaccount/secret.name" //nolint:gosec // G101: a claim name, no credential
	claimAccountName = "kubernetes.io/serviceaccount/service-account.name"
	claimAccountUID  = "kubernetes.io/serviceaccount/service-account.uid"
	claimIssuedAt    = "iat"
	claimTokenID     = "jti"
)

// ClaimStyle selects the claims of legacy tokens.
type ClaimStyle string

const (
	// CompatClaims are exactly kube-controller-manager's. They hold nothing that varies, so with an
	// RSA key the token of a Secret that was deleted and made again under the same name, for the
	// same account UID, is the same token.
	CompatClaims ClaimStyle = "compat"
	// UniqueClaims adds iat and jti, so that no two tokens are alike and deleting a Secret revokes
	// its token for good. The apiserver ignores both claims in a legacy token.
	UniqueClaims ClaimStyle = "unique"
)

// Account names a ServiceAccount of the API. The UID tells it from an account of the same name
// before or after it.
type Account struct{ Namespace, Name, UID string }

// Subject is the sub claim: the user name that the apiserver gives to who presents the token.
func (a Account) Subject() string { return "system:serviceaccount:" + a.Namespace + ":" + a.Name }

// check refuses an account that no valid token can be made for. A colon would make the subject
// ambiguous; the API allows none.
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

// legacyClaims are the claims of a legacy token. The members stand in alphabetical order, as
// go-jose writes those of a map, and the first and the third are not there in the compat form.
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

// boundClaims are the claims of a token bound to nothing but its account, as k8s.io/kubernetes
// pkg/serviceaccount/claims.go makes them for a TokenRequest without a bound object. Times are
// whole seconds since the epoch, rounded down.
func boundClaims(request BoundRequest, now time.Time, tokenID string) map[string]any {
	return map[string]any{
		claimIssuer:   request.Issuer,
		claimSubject:  request.Account.Subject(),
		claimIssuedAt: now.Unix(),
		claimTokenID:  tokenID,
		claimAudience: request.Audiences,
		"nbf":         now.Unix(),
		"exp":         now.Add(request.Lifetime).Unix(),
		claimKubernetes: map[string]any{
			"namespace": request.Account.Namespace,
			"serviceaccount": map[string]string{
				"name": request.Account.Name,
				"uid":  request.Account.UID,
			},
		},
	}
}

// encodePayload renders claims, a map or a struct whose members are in order, as a payload segment:
// JSON without white space, <, > and & escaped, in unpadded base64url. go-jose marshals a map the
// same way, with sorted members, which is the other half of what makes our RS256 tokens the same
// bytes as kube-controller-manager's.
func encodePayload(claims any) (string, error) {
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("encode claims: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(payload), nil
}

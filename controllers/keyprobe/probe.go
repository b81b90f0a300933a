// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keyprobe

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

const (
	// probeAudience is used for nothing else, so a leaked probe opens nothing.
	probeAudience = "sa-controller-manager/key-probe"
	probeLifetime = 2 * time.Minute

	// probeSkew is so long that a wrong clock does not look like a key that kube-apiserver refuses.
	probeSkew = time.Hour

	// hasKeyTimeout of HasKey: kube-apiserver waits for an external signer that is dead, for a minute.
	hasKeyTimeout = 5 * time.Second
)

// refusal is the error of a token that kube-apiserver has refused.
type refusal struct{ verdict string }

func (r refusal) Error() string { return "kube-apiserver refuses its tokens: " + r.verdict }

// IsRefusal reports whether kube-apiserver has refused the key, and not failed to answer.
func IsRefusal(err error) bool {
	var r refusal
	return errors.As(err, &r)
}

// prove returns nil if kube-apiserver accepts a token of key. It refuses a token of an account that is
// gone with any key, so a refusal counts only if the account in the cache is still there.
func (a *Prober) prove(ctx context.Context, key *signing.PrivateKey) error {
	account, err := a.anyAccount()
	if err != nil {
		return err
	}
	err = Prove(ctx, a.Client, a.Issuer, account, key)
	if !IsRefusal(err) {
		return err
	}
	live, getErr := a.Client.CoreV1().ServiceAccounts(account.Namespace).Get(ctx, account.Name, metav1.GetOptions{})
	switch {
	case getErr != nil:
		return fmt.Errorf("look up the service account to prove it with: %w", getErr)
	case live.UID != account.UID || live.DeletionTimestamp != nil:
		return fmt.Errorf("service account %s/%s was deleted during the proof", account.Namespace, account.Name)
	}
	return err
}

// wrongIssuerError reports that the key is good and the configured issuer is not.
type wrongIssuerError struct{ given, actual string }

func (e wrongIssuerError) Error() string {
	return fmt.Sprintf("the issuer that was given is %q, and kube-apiserver's is %q: it accepts the key with its own only", e.given,
		e.actual)
}

// Prove returns nil if kube-apiserver accepts a token of account that is signed with key. issuer is
// as in Config. IsRefusal of the error reports whether kube-apiserver has refused the key. It refuses
// a wrong issuer in the same way, so a refused token is tried again with the issuer of the discovery
// document.
func Prove(ctx context.Context, client kubernetes.Interface, issuer string, account *corev1.ServiceAccount, key *signing.PrivateKey) error {
	if issuer == "" {
		actual, err := LookUpIssuer(ctx, client)
		if err != nil {
			return err
		}
		return proveAs(ctx, client, actual, account, key)
	}
	err := proveAs(ctx, client, issuer, account, key)
	if !IsRefusal(err) {
		return err
	}
	if actual, unknown := LookUpIssuer(ctx, client); unknown == nil && actual != issuer &&
		proveAs(ctx, client, actual, account, key) == nil {
		return wrongIssuerError{given: issuer, actual: actual}
	}
	return err
}

func proveAs(ctx context.Context, client kubernetes.Interface, issuer string, account *corev1.ServiceAccount,
	key *signing.PrivateKey) error {
	holder := tokens.Account{Namespace: account.Namespace, Name: account.Name, UID: string(account.UID)}
	probe, err := tokens.NewIssuer(key, tokens.CompatClaims).Bound(ctx, tokens.BoundRequest{
		Issuer:    issuer,
		Account:   holder,
		Audiences: []string{probeAudience},
		Lifetime:  probeLifetime,
		Skew:      probeSkew,
	})
	if err != nil {
		return fmt.Errorf("sign a token to prove key %s: %w", key.ID(), err)
	}
	return review(ctx, client, probe, holder)
}

// review checks user and audiences too, as the API demands of its callers: kube-apiserver may pass a
// token on to a webhook, which may ignore audiences or accept any token.
func review(ctx context.Context, client kubernetes.Interface, token string, holder tokens.Account) error {
	review, err := client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{probeAudience}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("ask kube-apiserver for a token review: %w", err)
	}
	// It has verified the signature before it looks at the times.
	said := review.Status.Error
	if strings.Contains(said, "service account token has expired") || strings.Contains(said, "service account token is not valid yet") {
		return fmt.Errorf("the clocks of kube-apiserver and of this host differ by more than %s: %s", probeSkew, said)
	}
	if !review.Status.Authenticated {
		return refusal{cmp.Or(review.Status.Error, "it gives no reason (is the issuer right?)")}
	}
	if user := review.Status.User; user.Username != holder.Subject() || user.UID != holder.UID {
		return refusal{fmt.Sprintf("another authenticator takes it for %q with UID %q, want %q with UID %q",
			user.Username, user.UID, holder.Subject(), holder.UID)}
	}
	if !slices.Contains(review.Status.Audiences, probeAudience) {
		return refusal{fmt.Sprintf("it was accepted for the audiences %q, want %q", review.Status.Audiences, probeAudience)}
	}
	return nil
}

// anyAccount returns a live account for the probe: kube-system's default if it exists.
func (a *Prober) anyAccount() (*corev1.ServiceAccount, error) {
	if account, err := a.accounts.ServiceAccounts(metav1.NamespaceSystem).Get("default"); err == nil && account.DeletionTimestamp == nil {
		return account, nil
	}
	accounts, err := a.accounts.List(labels.Everything())
	i := slices.IndexFunc(accounts, func(account *corev1.ServiceAccount) bool { return account.DeletionTimestamp == nil })
	if i < 0 {
		return nil, cmp.Or(err, errors.New("there is no service account yet to prove it with"))
	}
	return accounts[i], nil
}

// PublishedKeys reads the keys that a kube-apiserver publishes. get asks it for a path.
func PublishedKeys(ctx context.Context, get func(ctx context.Context, path string) ([]byte, error)) ([]signing.PublicKey, error) {
	var keys []signing.PublicKey
	document, err := get(ctx, signing.JWKSPath)
	if err == nil {
		keys, err = signing.ParseJWKS(document)
	}
	if err != nil {
		return nil, fmt.Errorf("read kube-apiserver's keys at %s: %w", signing.JWKSPath, err)
	}
	return keys, nil
}

// HasKey reports whether a kube-apiserver accepts tokens of the key with an ID. It is shown one with a wrong signature, which
// is a reason only if the key is there. Without an answer in 5 s it is an error.
func HasKey(ctx context.Context, client kubernetes.Interface, id string) (bool, error) {
	encode := base64.RawURLEncoding.EncodeToString
	header := encode(fmt.Appendf(nil, `{"alg":"RS256","kid":%q}`, id))
	token := header + "." + encode([]byte(`{"iss":"kubernetes/serviceaccount"}`)) + "." + encode(make([]byte, 256))
	ctx, cancel := context.WithTimeout(ctx, hasKeyTimeout)
	defer cancel()
	review, err := client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token},
	}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return false, fmt.Errorf("ask kube-apiserver for a token review, which waits for its external signer: %w", err)
	case strings.Contains(review.Status.Error, "no keys found"):
		return false, nil
	case strings.Contains(review.Status.Error, "error in cryptographic primitive"):
		return true, nil
	}
	return false, fmt.Errorf("kube-apiserver does not say whether it has key %s: %s", id, cmp.Or(review.Status.Error, "it gives no reason"))
}

// LookUpIssuer returns the issuer that kube-apiserver expects in bound tokens (OpenID
// Connect Discovery 1.0, section 3: the document's member issuer).
func LookUpIssuer(ctx context.Context, client kubernetes.Interface) (string, error) {
	body, err := apiservers.Getter(client)(ctx, signing.DiscoveryPath)
	if err != nil {
		return "", fmt.Errorf("look up the issuer at %s, because none was given: %w", signing.DiscoveryPath, err)
	}
	var document struct {
		Issuer string `json:"issuer"`
	}
	if err := json.Unmarshal(body, &document); err != nil || document.Issuer == "" {
		return "", fmt.Errorf("look up the issuer at %s: the document names none, and none was given", signing.DiscoveryPath)
	}
	return document.Issuer, nil
}

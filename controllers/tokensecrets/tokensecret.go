// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tokensecrets is the model of token Secrets that controllers and commands share: what is
// cached of one, who created it, who wrote its token, whether it is its account's own, how it is
// written. It has no queue and no watch.
//
// A TokenSecret never holds the bytes of a token, only its key ID and a finding. Cached ones are
// shared and must not be changed. A user may have written everything in a Secret but its name,
// UID and times.
package tokensecrets

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/tokens"
)

const (
	// AutoCreatedLabel marks the token Secrets that this program creates by itself.
	AutoCreatedLabel = "sa-controller-manager/auto-created"

	// InvalidSinceLabel is put on a token Secret that the legacy token cleaner has
	// switched off; kube-apiserver refuses its token (pkg/serviceaccount/legacy.go).
	InvalidSinceLabel = "kubernetes.io/legacy-token-invalid-since"

	// LastUsedLabel holds the day on which kube-apiserver last saw the Secret's
	// token, also one that it refused for its InvalidSinceLabel.
	LastUsedLabel = "kubernetes.io/legacy-token-last-used"

	// KeepAnnotation exempts a token Secret from the legacy token cleaner.
	KeepAnnotation = "sa-controller-manager/keep"

	// ReplacesAnnotation names, as name/UID, the token Secret that this one was made
	// to replace.
	ReplacesAnnotation = "sa-controller-manager/replaces"

	// ReissueAnnotation says how a token Secret is re-issued once the key that has signed its token
	// is retired. Package keyring/reissue has its values.
	ReissueAnnotation = "sa-controller-manager/reissue"
)

// longestUID and longestKeyID bound what is cached of a text that is only compared with a UID or a key
// ID; ours have 43 characters, those of foreign signers up to 1024 (KEP-740). Otherwise a user who may
// write Secrets could make the cache hold 256 KiB of each.
const (
	longestUID   = 128
	longestKeyID = 1024
)

// shortened cuts a text that is too long to equal a UID.
func shortened(text string) string { return cut(text, longestUID) }

func cut(text string, longest int) string {
	if len(text) <= longest {
		return text
	}
	return strings.Clone(text[:longest+1]) // a part of it would keep all of it
}

// keptLabels are the labels of a token Secret that decisions depend on.
var keptLabels = []string{AutoCreatedLabel, InvalidSinceLabel, LastUsedLabel}

// TokenSecret is the cached part of a Secret of type kubernetes.io/service-account-token. Its
// metadata has identity, times and the labels that decisions depend on.
type TokenSecret struct {
	metav1.ObjectMeta

	// AccountName and AccountUID are the annotations that name the account of the token. Every
	// user who may write Secrets can set them to anything. AccountName is "" if the annotation is
	// not a valid name, and AccountUID is cut if it is longer than any UID.
	AccountName string
	AccountUID  types.UID

	// Keep exempts the Secret from the legacy token cleaner.
	Keep bool

	// Reissue is the annotation as it is, cut if it is long.
	Reissue string
	// Predecessor is the Secret that this one replaces, the zero value if it replaces none.
	Predecessor Predecessor
	// CreatedByController: managedFields say that a token controller created the Secret. Those
	// that Kubernetes 1.17 and earlier created have none.
	CreatedByController bool

	Immutable    bool
	HasCA        bool
	CAHash       [sha256.Size]byte
	HasNamespace bool
	// Token is nil while data.token is empty.
	Token *Token

	// TokenWriter is the field manager that wrote data.token last, "" if managedFields do not say.
	// Every user who may write the Secret can set managedFields to anything.
	TokenWriter string

	// Finding is "" or says in a few words what in the data does not fit the Secret: data.namespace, the
	// token's claims, or both.
	Finding string
}

// Token is the cached part of a token. No field has been verified.
type Token struct {
	keyID unique.Handle[string]
	// AccountUID is the UID that the token claims.
	AccountUID types.UID
	// Malformed: its spelling is not ours. Its fields are set nevertheless if kube-apiserver accepts
	// it (tokens.Canonical) and so needs its key.
	Malformed bool
}

// KeyID returns the key ID in the token's header, "" if it has none.
func (t *Token) KeyID() string { return t.keyID.Value() }

// Predecessor is the Secret that another one was made to replace.
type Predecessor struct {
	Name string
	UID  types.UID
}

// String returns the annotation's value.
func (p Predecessor) String() string { return p.Name + "/" + string(p.UID) }

// parsePredecessor returns the zero value if text names no Secret.
func parsePredecessor(text string) Predecessor {
	name, uid, ok := strings.Cut(text, "/")
	if !ok || name == "" || uid == "" || len(name) > validation.DNS1123SubdomainMaxLength || len(uid) > longestUID {
		return Predecessor{}
	}
	return Predecessor{Name: name, UID: types.UID(uid)}
}

// Replaces reports whether s was created to replace other, and not a later Secret of other's name.
func (s *TokenSecret) Replaces(other *TokenSecret) bool {
	return s.Predecessor == Predecessor{Name: other.Name, UID: other.UID} &&
		s.Namespace == other.Namespace && s.AccountName == other.AccountName
}

// Terminating reports whether the Secret is being deleted.
func (s *TokenSecret) Terminating() bool { return s.DeletionTimestamp != nil }

// InvalidSince reports whether the cleaner has switched the token off.
func (s *TokenSecret) InvalidSince() bool { return s.Labels[InvalidSinceLabel] != "" }

// New returns a token Secret that this program creates for an account, without data.
func New(account *corev1.ServiceAccount, name string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: account.Namespace,
			Name:      name,
			Labels:    map[string]string{AutoCreatedLabel: "true"},
			Annotations: map[string]string{
				corev1.ServiceAccountNameKey: account.Name,
				corev1.ServiceAccountUIDKey:  string(account.UID),
			},
		},
		Type: corev1.SecretTypeServiceAccountToken,
	}
}

const suffixLength = 5

// NewSuffix returns a random end for the name of a new Secret.
func NewSuffix() string { return rand.String(suffixLength) }

// NewName returns a name for a Secret of an account. It is new every time: a legacy token has the
// same bytes for the same name and account, so a name used twice would bring a revoked token back.
// The account's part is cut where the whole name would be longer than a name may be.
func NewName(account, suffix string) string {
	const middle = "-token-"
	longest := validation.DNS1123SubdomainMaxLength - len(middle) - suffixLength
	return account[:min(len(account), longest)] + middle + suffix
}

// IsName reports whether NewName may have returned secret for the account.
func IsName(account, secret string) bool {
	return len(secret) > suffixLength && secret == NewName(account, secret[len(secret)-suffixLength:])
}

// AutoCreated reports whether the Secret bears our marker.
func (s *TokenSecret) AutoCreated() bool { return s.Labels[AutoCreatedLabel] != "" }

// BelongsTo reports whether the annotations name account, and no other UID than its.
func (s *TokenSecret) BelongsTo(account *corev1.ServiceAccount) bool {
	return account != nil && account.Name == s.AccountName && (s.AccountUID == "" || s.AccountUID == account.UID)
}

// ObjectName returns the Secret's own name.
func (s *TokenSecret) ObjectName() cache.ObjectName { return cache.MetaObjectToName(s) }

// Account returns the name of the account in the annotation.
func (s *TokenSecret) Account() cache.ObjectName {
	return cache.NewObjectName(s.Namespace, s.AccountName)
}

// Reference returns a reference to the Secret for an Event.
func (s *TokenSecret) Reference() *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: s.Namespace, Name: s.Name, UID: s.UID}
}

// Observe returns the part of a Secret that is cached.
func Observe(secret *corev1.Secret) *TokenSecret {
	observed := &TokenSecret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         secret.Namespace,
			Name:              secret.Name,
			UID:               secret.UID,
			ResourceVersion:   secret.ResourceVersion,
			CreationTimestamp: secret.CreationTimestamp,
			DeletionTimestamp: secret.DeletionTimestamp,
			Labels:            keepLabels(secret.Labels),
		},
		AccountUID:   types.UID(shortened(secret.Annotations[corev1.ServiceAccountUIDKey])),
		Keep:         wantsKeeping(secret.Annotations),
		Reissue:      shortened(secret.Annotations[ReissueAnnotation]),
		Predecessor:  parsePredecessor(secret.Annotations[ReplacesAnnotation]),
		Immutable:    secret.Immutable != nil && *secret.Immutable,
		HasNamespace: len(secret.Data[corev1.ServiceAccountNamespaceKey]) > 0,
	}
	observed.CreatedByController = createdByController(secret)
	if name := secret.Annotations[corev1.ServiceAccountNameKey]; len(validation.IsDNS1123Subdomain(name)) == 0 {
		observed.AccountName = name
	}
	if ca := secret.Data[corev1.ServiceAccountRootCAKey]; len(ca) > 0 {
		observed.HasCA, observed.CAHash = true, sha256.Sum256(ca)
	}
	// Many Secrets share a few names: each is in memory once.
	observed.TokenWriter = unique.Make(tokenWriter(secret.ManagedFields)).Value()
	observed.Finding = observed.observeToken(string(secret.Data[corev1.ServiceAccountTokenKey]))
	if observed.HasNamespace && string(secret.Data[corev1.ServiceAccountNamespaceKey]) != secret.Namespace {
		observed.Finding = strings.TrimPrefix(observed.Finding+"; data.namespace does not name the namespace of the Secret", "; ")
	}
	return observed
}

// observeToken returns what does not fit the Secret.
func (s *TokenSecret) observeToken(data string) (finding string) {
	if data == "" {
		return ""
	}
	s.Token = &Token{keyID: unique.Make("")}
	token, err := tokens.Inspect(data)
	if err != nil {
		finding, s.Token.Malformed = fmt.Sprintf("data.token is not a service account token: %v", err), true
		token, _ = tokens.Inspect(tokens.Canonical(data))
	}
	s.Token.keyID = unique.Make(cut(token.KeyID, longestKeyID))
	s.Token.AccountUID = types.UID(shortened(token.AccountUID))
	if s.Token.AccountUID == s.AccountUID {
		s.Token.AccountUID = s.AccountUID // one string in memory instead of two
	}
	if err != nil {
		return finding
	}
	// The UID is compared with that of the account later, here with itself.
	account := tokens.Account{Namespace: s.Namespace, Name: s.AccountName, UID: token.AccountUID}
	if mismatch := token.Mismatch(account, s.Name); mismatch != "" {
		return "data.token is not for this Secret: " + mismatch
	}
	return ""
}

// wantsKeeping reports whether the annotation has any value that is not false: a Secret that is
// deleted by mistake does not come back.
func wantsKeeping(annotations map[string]string) bool {
	value, given := annotations[KeepAnnotation]
	if !given {
		return false
	}
	keep, err := strconv.ParseBool(value)
	return keep || err != nil
}

func keepLabels(labels map[string]string) (kept map[string]string) {
	for _, name := range keptLabels {
		if value, ok := labels[name]; ok {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[name] = value
		}
	}
	return kept
}

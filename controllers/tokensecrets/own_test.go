// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecrets

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens"
)

// secretOf is a Secret of the account robot, with changes made to it.
func secretOf(name string, changes ...func(*corev1.Secret)) *TokenSecret {
	return Observe(tokenSecret(append([]func(*corev1.Secret){func(s *corev1.Secret) { s.Name = name }}, changes...)...))
}

func labelled(label string) func(*corev1.Secret) {
	return func(s *corev1.Secret) { metav1.SetMetaDataLabel(&s.ObjectMeta, label, "true") }
}

func createdAt(second int64) func(*corev1.Secret) {
	return func(s *corev1.Secret) { s.CreationTimestamp = metav1.Unix(second, 0) }
}

func TestOwn(t *testing.T) {
	t.Parallel()
	ours := labelled(AutoCreatedLabel)
	replacement := func(secret *TokenSecret) *TokenSecret {
		if secret.Name == "replaced" {
			return secretOf("b")
		}
		return nil
	}
	type list = []*TokenSecret
	for name, tc := range map[string]struct {
		reason, references, want string
		secrets                  list
	}{
		"None":          {references: "gone"},
		"Referenced":    {reason: "the creator does not matter", references: "a", secrets: list{secretOf("a")}, want: "a"},
		"NotReferenced": {reason: "our marker alone does not make it the account's", secrets: list{secretOf("a", ours)}},
		"MarkedInvalid": {
			reason: "kube-apiserver refuses its token, so the account needs another one", references: "a",
			secrets: list{secretOf("a", ours, labelled(InvalidSinceLabel))},
		},
		"Terminating": {
			references: "a", secrets: list{secretOf("a", func(s *corev1.Secret) { s.DeletionTimestamp = new(metav1.Now()) })},
		},
		"OfAnEarlierAccount": {references: "a", secrets: list{secretOf("a", withAnnotation(corev1.ServiceAccountUIDKey, "other"))}},
		"OursFirst": {
			reason: "then the older one may go once it is unused", references: "a b",
			secrets: list{secretOf("a", createdAt(1)), secretOf("b", createdAt(2), ours)}, want: "b",
		},
		"OldestFirst": {
			reason: "the answer does not change when a younger one comes", references: "a b c",
			secrets: list{secretOf("c", createdAt(2), ours), secretOf("a", createdAt(3), ours), secretOf("b", createdAt(2), ours)},
			want:    "b",
		},
		"Replaced": {
			reason: "a re-issued Secret gives way, or it would stay forever", references: "replaced b",
			secrets: list{secretOf("replaced", createdAt(1), ours), secretOf("b", createdAt(2), ours)}, want: "b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // whatever their order
				got := ""
				robot := account()
				robot.Secrets = nil
				for name := range strings.FieldsSeq(tc.references) {
					robot.Secrets = append(robot.Secrets, corev1.ObjectReference{Name: name})
				}
				if own := Own(robot, tc.secrets, replacement); own != nil {
					got = own.Name
				}
				testutil.Check(t, tc.reason, tc.want, got)
				slices.Reverse(tc.secrets)
			}
		})
	}
}

func TestLister(t *testing.T) {
	t.Parallel()
	in := func(namespace, name, account string) *TokenSecret {
		return secretOf(name, withAnnotation(corev1.ServiceAccountNameKey, account), func(s *corev1.Secret) { s.Namespace = namespace })
	}
	names := func(secrets []*TokenSecret) string {
		var all []string
		for _, secret := range secrets {
			all = append(all, secret.ObjectName().String())
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	first := in("shop", "robot-token-1", "robot")
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, Indexers())
	for _, secret := range []*TokenSecret{
		first,
		in("shop", "robot-token-2", "robot"),
		in("shop", "admin-token", "admin"),
		in("bank", "robot-token-1", "robot"),
		in("shop", "nobodys", ""),
	} {
		testutil.Must(t, indexer.Add(secret))
	}
	lister := ListerOf(indexer)

	got, none := lister.Get(first.ObjectName()), lister.Get(cache.NewObjectName("shop", "robot-token-3"))
	testutil.Expect(t, got == first && none == nil, "Get returned %v and, of a Secret that is not there, %v", got, none)
	testutil.Check(t, "all", 5, len(lister.All()))
	for account, want := range map[cache.ObjectName]string{
		{Namespace: "shop", Name: "robot"}: "shop/robot-token-1 shop/robot-token-2",
		{Namespace: "bank", Name: "robot"}: "bank/robot-token-1",
		{Namespace: "bank", Name: "admin"}: "",
		{Namespace: "shop", Name: ""}:      "",
	} {
		testutil.Check(t, "Secrets of "+account.String(), want, names(lister.OfAccount(account)))
	}
}

// TestEveryDeletionIsSaid: with the default verbosity a line of the log and an Event say what was
// deleted and why, and nothing is said of what was not.
func TestEveryDeletionIsSaid(t *testing.T) {
	t.Parallel()
	resource, errBoom := schema.GroupResource{Resource: "secrets"}, errors.New("boom")
	for name, answer := range map[string]error{
		"Deleted": nil, "Changed": apierrors.NewConflict(resource, "robot-token", errBoom),
		"Gone": apierrors.NewNotFound(resource, "robot-token"), "Refused": errBoom,
	} {
		client, recorded, said := fake.NewClientset(tokenSecret()), record.NewFakeRecorder(10), ""
		client.PrependReactor("delete", "secrets",
			func(clienttesting.Action) (bool, runtime.Object, error) { return answer != nil, nil, answer })
		var log bytes.Buffer
		ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log), textlogger.Verbosity(0))))
		deleted, err := Delete(ctx, client, events.NewRecorderTo(recorded), Observe(tokenSecret()), "Tidied", "nobody needs it")
		testutil.Expect(t, deleted == (answer == nil) && errors.Is(err, errBoom) == (name == "Refused") &&
			(err == nil || name == "Refused"),
			"%s: got %v and %v", name, deleted, err)
		if close(recorded.Events); deleted {
			said = "Normal Tidied deleted: nobody needs it"
		}
		testutil.Check(t, name+": Event", said, <-recorded.Events)
		if deleted {
			said = `"Deleted token secret" secret="shop/robot-token" uid="secret-uid" reason="Tidied" why="nobody needs it"`
		}
		testutil.Expect(t, strings.Contains(log.String(), said) && (deleted || log.Len() <= 0), "%s: the log says %q", name, log.String())
	}
}

func TestMain(m *testing.M) {
	// The second handler slows errors down by the time since the last one, which was in another
	// synctest bubble and may be decades ahead.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] //nolint:reassign // there is no other way
	testutil.Main(m)
}

const accountUID = "9b1c6f6a-6a3c-4d5e-8a58-2f4f1c2d3e4f"

// robot is the account that most tokens here are for.
func robot() tokens.Account { return tokens.Account{Namespace: "shop", Name: "robot", UID: accountUID} }

// legacyToken is a signed legacy token.
func legacyToken(t testing.TB, account tokens.Account, secret string) string {
	t.Helper()
	return testutil.Get(tokens.NewIssuer(testkeys.Parse(testkeys.P256()), tokens.CompatClaims).Legacy(t.Context(), account, secret))(t)
}

// tokenSecret is the Secret shop/robot-token for the account robot, complete but for the token,
// with changes made to it.
func tokenSecret(changes ...func(*corev1.Secret)) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "robot-token", UID: "secret-uid", ResourceVersion: "17",
			Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot", corev1.ServiceAccountUIDKey: accountUID},
		},
		Type: corev1.SecretTypeServiceAccountToken,
		Data: map[string][]byte{
			corev1.ServiceAccountRootCAKey:    []byte(strings.Repeat("certificate ", 100)),
			corev1.ServiceAccountNamespaceKey: []byte("shop"),
		},
	}
	for _, change := range changes {
		change(secret)
	}
	return secret
}

func withToken(token string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Data[corev1.ServiceAccountTokenKey] = []byte(token) }
}

func withAnnotation(name, value string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Annotations[name] = value }
}

func withData(name, value string) func(*corev1.Secret) {
	return func(secret *corev1.Secret) { secret.Data[name] = []byte(value) }
}

// fieldsV1 as kube-apiserver writes them.
const (
	oneReference = `{"f:secrets":{".":{},"k:{\"name\":\"robot-token-x2x9z\"}":{}}}`
	applied      = `{"f:metadata":{"f:labels":{"f:app":{}}},"f:secrets":{"k:{\"name\":\"robot-token-x2x9z\"}":{".":{},"f:name":{}}}}`
	pullSecret   = `{"f:imagePullSecrets":{".":{},"k:{\"name\":\"robot-token-x2x9z\"}":{}}}`
	labelFields  = `{"f:metadata":{"f:annotations":{".":{},"f:team":{}},"f:labels":{".":{},"f:app":{}}}}`
)

func wrote(manager, fields string) metav1.ManagedFieldsEntry {
	entry := metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
	}
	if fields != "" {
		entry.FieldsV1 = metav1.NewFieldsV1(fields)
	}
	return entry
}

// account is one with something in every field that the trimming might lose.
func account(entries ...metav1.ManagedFieldsEntry) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "robot", UID: accountUID, ResourceVersion: "3", Finalizers: []string{"example.com/wait"},
			Labels: map[string]string{"app": "shop"}, Annotations: map[string]string{"team": "blue"}, ManagedFields: entries,
		},
		Secrets:          []corev1.ObjectReference{{Name: "robot-token-x2x9z"}},
		ImagePullSecrets: []corev1.LocalObjectReference{{Name: "registry"}},
	}
}

// TestUnattributedReferences: what doctor shows is what token controllers leave alone.
func TestUnattributedReferences(t *testing.T) {
	t.Parallel()
	robot := account(wrote(meta.FieldManager, oneReference), wrote("kubectl-edit", `{"f:secrets":{"k:{\"name\":\"vault\"}":{}}}`))
	for _, name := range []string{"vault", "pull", "", "robot-token-aaaaa", "vault", "no/name"} {
		robot.Secrets = append(robot.Secrets, corev1.ObjectReference{Name: name})
	}
	got := UnattributedReferences(robot, func(secret string) bool { return secret == "pull" })
	testutil.Check(t, "requests", []string{"vault", "robot-token-aaaaa", "no/name"}, got)
}

func TestWrittenReferences(t *testing.T) {
	t.Parallel()
	const kcm = "kube-controller-manager"
	const two = `{"f:secrets":{".":{},"k:{\"name\":\"robot-token-aaaaa\"}":{},"k:{\"name\":\"robot-token-x2x9z\"}":{}}}`
	type list = []metav1.ManagedFieldsEntry
	for name, tc := range map[string]struct {
		reason  string
		entries list
		want    bool
	}{
		"Ours":       {entries: list{wrote(meta.FieldManager, oneReference)}, want: true},
		"Upstream's": {entries: list{wrote(kcm, oneReference)}, want: true},
		"Applied": {
			reason: "a manager may own the fields of the entry too", entries: list{wrote(meta.FieldManager, applied)}, want: true,
		},
		"SecondEntry": {entries: list{wrote("kubectl-edit", labelFields), wrote(kcm, two)}, want: true},
		"Shared": {
			reason:  "another client wants the same entry, too",
			entries: list{wrote("kubectl-edit", oneReference), wrote(kcm, oneReference)},
		},

		"User's": {reason: "a user's own Secret, maybe not created yet", entries: list{wrote("kubectl-edit", oneReference)}},
		"UsersBesidesOurs": {
			reason: "we wrote another one",
			entries: list{wrote("kubectl-edit", oneReference),
				wrote(meta.FieldManager, `{"f:secrets":{"k:{\"name\":\"robot-token-aaaaa\"}":{}}}`)},
		},
		"WholeList": {reason: "before the list had keys, who owned it owned no entry", entries: list{wrote(kcm, `{"f:secrets":{}}`)}},
		"Prefix": {
			reason:  "robot-token-x2x9z begins like the name that was written",
			entries: list{wrote(kcm, `{"f:secrets":{"k:{\"name\":\"robot-token-x2x9z-old\"}":{}}}`)},
		},
		"Pull": {reason: "a pull secret is no token reference", entries: list{wrote(kcm, pullSecret)}},
		"PullBesidesSecrets": {
			reason: "it wrote another reference, and a pull secret of this name", entries: list{
				wrote(kcm, `{"f:imagePullSecrets":{"k:{\"name\":\"robot-token-x2x9z\"}":{}},`+
					`"f:secrets":{"k:{\"name\":\"robot-token-aaaaa\"}":{}}}`),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			has := account(tc.entries...)
			testutil.Check(t, tc.reason, tc.want, WrittenReferences(has.ManagedFields).Has("robot-token-x2x9z"))
			kept := KeepWrittenReferences(has.ManagedFields)
			testutil.Check(t, tc.reason+": of the trimmed account", tc.want, WrittenReferences(kept).Has("robot-token-x2x9z"))
			testutil.Expect(t, len(kept) <= 1 && (!tc.want || len(kept) != 0), "%s: %d entries are kept, want one at most", tc.reason,
				len(kept))
			testutil.Check(t, "kept of what was kept", kept, KeepWrittenReferences(kept))
		})
	}
}

func TestTokenWriter(t *testing.T) {
	t.Parallel()
	const (
		all    = `{"f:data":{".":{},"f:ca.crt":{},"f:namespace":{},"f:token":{}},"f:metadata":{"f:annotations":{}}}`
		token  = `{"f:data":{"f:token":{}}}`
		onlyCA = `{"f:data":{"f:ca.crt":{}}}`
	)
	at := func(entry metav1.ManagedFieldsEntry, second int64) metav1.ManagedFieldsEntry {
		entry.Time = &metav1.Time{Time: time.Unix(second, 0)}
		return entry
	}
	type list = []metav1.ManagedFieldsEntry
	for name, tc := range map[string]struct {
		reason, want string
		has          list
	}{
		"Nothing":     {reason: "an apiserver may be told to track nothing"},
		"NoFields":    {has: list{wrote("kubectl-edit", "")}},
		"NoData":      {has: list{wrote("kubectl-edit", labelFields)}},
		"Damaged":     {reason: "anybody may write them", has: list{wrote("x", `{"f:data":[]}`), wrote("x", `{"f:data"`)}},
		"OneWroteAll": {has: list{at(wrote(meta.UpstreamFieldManager, all), 1)}, want: meta.UpstreamFieldManager},
		"LastCounts": {
			reason: "two may own a field that both have applied", has: list{at(wrote("late", token), 2), at(wrote("early", token), 1)},
			want: "late",
		},
		"NoTime":   {has: list{wrote("another", token)}, want: "another"},
		"OtherKey": {has: list{at(wrote("early", token), 1), at(wrote("late", onlyCA), 2)}, want: "early"},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.has}}
			testutil.Check(t, tc.reason, tc.want, Observe(secret).TokenWriter)
		})
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

const reissueAnnotation = "sa-controller-manager/reissue"

// rotation is a control plane that accepts two keys and a key ring that has one of
// them.
type rotation struct {
	*testcluster.ControlPlane
	ringFile

	next           string // file of the other key
	oldKey, newKey string // key IDs
}

func newRotation(t *testing.T) *rotation {
	t.Helper()
	next := newKey(t, devcluster.ECDSA)
	c := testcluster.New(t, devcluster.Options{ExtraKeyFiles: []string{next}})
	return &rotation{
		ControlPlane: c, ringFile: newRingFile(t, c, c.SigningKeyFile()), next: next,
		oldKey: testcluster.KeyIDOfPEM(t, testcluster.ReadFile(t, c.SigningKeyFile())), newKey: testcluster.KeyIDOfPEM(t, testcluster.ReadFile(t, next)),
	}
}

// with returns the flags of a manager that has the key ring.
func (r *rotation) with(flags ...string) []string {
	return append([]string{"--service-account-private-key-file=", r.flag()}, flags...)
}

// rotate makes the other key the active one.
func (r *rotation) rotate(t *testing.T) {
	t.Helper()
	r.must(t, "rotate", "start", "--from-private-key-file="+r.next, "--cache-age=0s")
	r.must(t, "rotate", "activate", "--wait")
}

// holder calls kube-apiserver with one token repeatedly.
type holder struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu       sync.Mutex
	calls    int
	failures []string
}

func hold(t *testing.T, c *testcluster.ControlPlane, secret *corev1.Secret) *holder {
	t.Helper()
	config := rest.AnonymousClientConfig(c.Config())
	config.BearerToken = string(secret.Data[corev1.ServiceAccountTokenKey])
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	h := &holder{stop: cancel}
	h.done.Go(func() {
		for ctx.Err() == nil {
			_, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			h.mu.Lock()
			h.calls++
			if err != nil && ctx.Err() == nil {
				h.failures = append(h.failures, err.Error())
			}
			h.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	t.Cleanup(func() { cancel(); h.done.Wait() })
	return h
}

// end stops the calls and checks that none has failed.
func (h *holder) end(t *testing.T) {
	t.Helper()
	h.stop()
	h.done.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	t.Logf("a holder of an old token made %d calls, %d failed", h.calls, len(h.failures))
	if h.calls < 10 || len(h.failures) > 0 {
		t.Errorf("of %d calls with an old token %d failed, such as %q", h.calls, len(h.failures), h.failures[:min(1, len(h.failures))])
	}
}

// replaced returns the Secret that has replaced old, once the account references it
// before all old ones.
func replaced(t *testing.T, c *testcluster.ControlPlane, old *corev1.Secret) *corev1.Secret {
	t.Helper()
	want := old.Name + "/" + string(old.UID)
	var found *corev1.Secret
	c.AwaitSecrets(t, old.Namespace, func(secrets []*corev1.Secret) error {
		i := slices.IndexFunc(secrets, func(s *corev1.Secret) bool { return s.Annotations[testcluster.ReplacesAnnotation] == want })
		if i < 0 {
			return fmt.Errorf("nothing replaces %q", old.Name)
		}
		found = secrets[i]
		return testcluster.HasToken(found)
	})
	c.AwaitAccount(t, old.Namespace, old.Annotations[corev1.ServiceAccountNameKey], func(account *corev1.ServiceAccount) error {
		names := testcluster.ReferenceNames(account)
		at, before := slices.Index(names, found.Name), slices.Index(names, old.Name)
		if at < 0 || before >= 0 && before < at {
			return fmt.Errorf("%q references %v, want %q before %q", account.Name, names, found.Name, old.Name)
		}
		return nil
	})
	return found
}

// kept checks that a Secret has the same token and that nothing replaces it.
func kept(t *testing.T, c *testcluster.ControlPlane, before *corev1.Secret) {
	t.Helper()
	now := c.GetSecret(t, before.Namespace, before.Name)
	if now.UID != before.UID || !bytes.Equal(now.Data[corev1.ServiceAccountTokenKey], before.Data[corev1.ServiceAccountTokenKey]) {
		t.Errorf("secret %q was changed", before.Name)
	}
	secrets, err := c.API.CoreV1().Secrets(before.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range secrets.Items {
		if strings.HasPrefix(secret.Annotations[testcluster.ReplacesAnnotation], before.Name+"/") {
			t.Errorf("secret %q was re-issued as %q", before.Name, secret.Name)
		}
	}
}

// awaitReissue awaits the count of Secrets in a state, or of those that are blocked for a reason.
func awaitReissue(t *testing.T, m *testcluster.Manager, label, value string, secrets float64) {
	t.Helper()
	ctx := testcluster.Context(t)
	testcluster.Poll(t, "await the count of "+value, func() error {
		metrics, err := m.Metrics(ctx)
		if err != nil {
			return err
		}
		if got := metrics.Sum("sacm_token_reissue_secrets", devcluster.Labels{label: value}); got != secrets {
			return fmt.Errorf("%v, want %v", got, secrets)
		}
		return nil
	})
}

// TestReissue rotates with default settings under clients that hold old tokens.
func TestReissue(t *testing.T) {
	t.Parallel()
	r := newRotation(t)
	namespace := r.Namespace(t)
	secretOf := func(account, name string, changes ...testcluster.SecretOption) *corev1.Secret {
		return testcluster.TokenSecret(namespace, name, account, changes...)
	}

	// Secrets that users made and the real KCM has filled with the old key.
	kcm := r.StartKCM(t)
	users := r.CreateAccount(t, namespace, "users", testcluster.Referencing("plain"))
	r.CreateSecret(t, secretOf("users", "plain"))
	r.CreateSecret(t, secretOf("users", "asked", testcluster.WithAnnotation(reissueAnnotation, "side-by-side")))
	r.CreateSecret(t, secretOf("users", "in-place", testcluster.WithAnnotation(reissueAnnotation, "in-place")))
	r.CreateSecret(t, secretOf("users", "never", testcluster.WithAnnotation(reissueAnnotation, "never")))
	odd := r.CreateSecret(t, secretOf("users", "odd", testcluster.WithAnnotation(reissueAnnotation, "sometimes")))
	// Named as a token controller would, without managedFields: no proof. An empty entry clears them.
	r.CreateAccount(t, namespace, "named", testcluster.Referencing("named-token-x7k2p"))
	r.CreateSecret(t, secretOf("named", "named-token-x7k2p"))
	r.PatchSecret(t, namespace, "named-token-x7k2p", `{"metadata":{"managedFields":[{}]}}`)
	invalid := r.CreateSecret(t, secretOf("named", "invalid", testcluster.WithAnnotation(reissueAnnotation, "side-by-side")))
	// A Secret that the real KCM made.
	r.CreateAccount(t, namespace, "managed", testcluster.Referencing("theirs"))
	if _, err := r.API.CoreV1().Secrets(namespace).Create(t.Context(), secretOf("managed", "theirs"), metav1.CreateOptions{FieldManager: "kube-controller-manager"}); err != nil {
		t.Fatal(err)
	}
	filled := map[string]*corev1.Secret{}
	for _, name := range []string{"plain", "asked", "in-place", "never", "odd", "named-token-x7k2p", "invalid", "theirs"} {
		filled[name] = r.AwaitFilled(t, namespace, name)
		if testcluster.KeyIDOf(t, filled[name]) != r.oldKey {
			t.Fatalf("%s is not signed by the old key", name)
		}
	}
	testcluster.StopKCM(t, kcm)
	r.PatchSecret(t, namespace, invalid.Name, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, testcluster.InvalidSinceLabel, testcluster.Today(t)))

	m := r.Manage(t, r.with("--token-secrets=auto")...)
	app := r.CreateAccount(t, namespace, "app")
	own := r.AwaitAutoSecret(t, namespace, "app")
	r.ExpectAccepted(t, filled["theirs"], r.GetAccount(t, namespace, "managed"))
	holders := []*holder{hold(t, r.ControlPlane, own), hold(t, r.ControlPlane, filled["theirs"]), hold(t, r.ControlPlane, filled["plain"]), hold(t, r.ControlPlane, filled["asked"])}

	r.rotate(t)
	m.AwaitSigner(t, r.newKey)
	for _, old := range []*corev1.Secret{own, filled["theirs"], filled["asked"]} {
		successor := replaced(t, r.ControlPlane, old)
		if testcluster.KeyIDOf(t, successor) != r.newKey || successor.Labels[testcluster.AutoCreatedLabel] == "" {
			t.Errorf("the successor of %s is not ours, or of another key", old.Name)
		}
		if now := r.GetSecret(t, namespace, old.Name); !bytes.Equal(now.Data["token"], old.Data["token"]) {
			t.Errorf("the token of %s has changed", old.Name)
		}
	}
	r.ExpectAccepted(t, replaced(t, r.ControlPlane, own), app)

	// In place: the same Secret, another token, and the old one is refused.
	overwritten := r.AwaitSecret(t, namespace, "in-place", func(s *corev1.Secret) error {
		if testcluster.KeyIDOf(t, s) != r.newKey {
			return fmt.Errorf("%s has key %s", s.Name, testcluster.KeyIDOf(t, s))
		}
		return nil
	})
	if overwritten.UID != filled["in-place"].UID {
		t.Error("the Secret is another one")
	}
	r.ExpectAccepted(t, overwritten, users)
	r.AwaitRefused(t, filled["in-place"].Data["token"])
	r.AwaitEvent(t, testcluster.AboutSecret(overwritten, "TokenOverwritten"), "refuses the previous token")

	r.AwaitWarning(t, testcluster.AboutSecret(odd, "UnknownReissueMode"), `must be "side-by-side", "in-place" or "never"`)
	r.AwaitEvent(t, testcluster.AboutSecret(own, "TokenSecretReplaced"), "this token stays valid")
	m.AwaitMetric(t, "sacm_token_reissue_secrets", devcluster.Labels{"state": "replaced"}, 3)
	for state, secrets := range map[string]float64{"blocked": 5, "due": 0, "filling": 0, "switching": 0} {
		awaitReissue(t, m, "state", state, secrets)
	}
	for reason, secrets := range map[string]float64{"user-made": 2, "never": 1, "unknown-mode": 1, "invalid": 1} {
		awaitReissue(t, m, "reason", reason, secrets)
	}
	for _, name := range []string{"plain", "named-token-x7k2p", "never", "odd", "invalid"} {
		kept(t, r.ControlPlane, filled[name])
	}
	if names := testcluster.ReferenceNames(r.GetAccount(t, namespace, "app")); !slices.Equal(names, []string{replaced(t, r.ControlPlane, own).Name, own.Name}) {
		t.Errorf("account app references %v", names)
	}

	// From here on nothing changes, even after a restart.
	r.must(t, "rotate", "complete")
	r.AwaitProcessed(t, m)
	before := r.ResourceVersions(t, namespace)
	m.Shutdown(t)
	m = r.Manage(t, r.with("--token-secrets=auto")...)
	r.AwaitProcessed(t, m)
	if after := r.ResourceVersions(t, namespace); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("a restart has changed something:\n%v\n%v", before, after)
	}

	// A rollback retires the new key: what has it is replaced once more, and nothing else.
	successor := replaced(t, r.ControlPlane, own)
	r.must(t, "rollback")
	m.AwaitSigner(t, r.oldKey)
	third := replaced(t, r.ControlPlane, successor)
	if testcluster.KeyIDOf(t, third) != r.oldKey {
		t.Error("the key of the third one is not the one that signs")
	}
	m.WaitIdle(t)
	if secrets := r.AutoSecrets(t, namespace, "app"); len(secrets) != 3 {
		t.Errorf("account app has %d Secrets, want 3", len(secrets))
	}
	for _, h := range holders {
		h.end(t)
	}
}

// TestEndOfAReplacedSecret covers the cleaner, which marks and deletes replaced Secrets that are not
// used. The clock cannot be changed, so the period is a millisecond.
func TestEndOfAReplacedSecret(t *testing.T) {
	await.Long(t)
	t.Parallel()
	r := newRotation(t)
	r.AwaitTracking(t)
	r.TrackSince(t, testcluster.LongAgo)
	now := testcluster.Today(t)
	namespace := r.Namespace(t)
	m := r.Manage(t, r.with("--token-secrets=auto")...)
	olds := map[string]*corev1.Secret{}
	for _, name := range []string{"idle", "used", "mounted"} {
		r.CreateAccount(t, namespace, name)
		olds[name] = r.AwaitAutoSecret(t, namespace, name)
	}
	r.CreateAccount(t, namespace, "users")
	r.CreateSecret(t, testcluster.TokenSecret(namespace, "asked", "users", testcluster.WithAnnotation(reissueAnnotation, "side-by-side")))
	olds["users"] = r.AwaitFilled(t, namespace, "asked")
	r.ExpectAccepted(t, olds["used"], r.GetAccount(t, namespace, "used"))
	r.CreatePod(t, namespace, testcluster.PodUsing("one", testcluster.InVolume(olds["mounted"].Name)))
	r.rotate(t)
	m.AwaitSigner(t, r.newKey)
	successors := map[string]*corev1.Secret{}
	for name, old := range olds {
		successors[name] = replaced(t, r.ControlPlane, old)
	}
	m.Shutdown(t)

	flags := r.with("--token-secrets=auto", "--reissue-idle-period=1ms")
	m = r.Manage(t, flags...)
	m.AwaitRound(t)
	marks := r.Marks(t, namespace)
	for name, want := range map[string]string{"idle": now, "users": now, "used": "", "mounted": ""} {
		if got := marks[olds[name].Name]; got != want {
			t.Errorf("the old Secret of %s is marked %q, want %q", name, got, want)
		}
		if got := marks[successors[name].Name]; got != "" {
			t.Errorf("the new Secret of %s is marked %q", name, got)
		}
	}
	r.RefusedAsInvalid(t, olds["idle"])
	r.AwaitEvent(t, testcluster.AboutSecret(olds["idle"], "LegacyTokenMarkedInvalid"), "replaced by Secret")
	// A use of today keeps a marked Secret. Without one it is deleted after the period.
	for _, name := range []string{"idle", "users"} {
		r.PatchSecret(t, namespace, olds[name].Name, fmt.Sprintf(`{"metadata":{"labels":{%q:%q,%q:null}}}`, testcluster.InvalidSinceLabel, testcluster.LongAgo, testcluster.LastUsedLabel))
	}
	m.Shutdown(t)
	m = r.Manage(t, flags...)
	r.AwaitGone(t, namespace, olds["idle"].Name, olds["users"].Name)
	r.AwaitAccount(t, namespace, "idle", func(account *corev1.ServiceAccount) error {
		if names := testcluster.ReferenceNames(account); len(names) != 1 || names[0] != successors["idle"].Name {
			return fmt.Errorf("%v", names)
		}
		return nil
	})
	r.AwaitProcessed(t, m)
	if secrets := r.AutoSecrets(t, namespace, "idle"); len(secrets) != 1 || secrets[0].Name != successors["idle"].Name {
		t.Errorf("account idle has %d Secrets", len(secrets))
	}
	r.ExpectAccepted(t, successors["idle"], r.GetAccount(t, namespace, "idle"))
}

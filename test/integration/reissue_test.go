// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

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
)

const (
	reissueAnnotation  = "sa-controller-manager/reissue"
	replacesAnnotation = "sa-controller-manager/replaces"
	keyRingSecret      = "sa-controller-manager-key-ring"
)

// rotation is a control plane that accepts two keys and a key ring that has one of
// them.
type rotation struct {
	*controlPlane
	ringFile

	next           string // file of the other key
	oldKey, newKey string // key IDs
}

func newRotation(t *testing.T) *rotation {
	t.Helper()
	next := newKey(t, devcluster.ECDSA)
	c := ownControlPlane(t, devcluster.Options{ExtraKeyFiles: []string{next}})
	return &rotation{
		controlPlane: c, ringFile: c.newRingFile(t, c.SigningKeyFile()), next: next,
		oldKey: idOf(t, read(t, c.SigningKeyFile())), newKey: idOf(t, read(t, next)),
	}
}

// with are the flags of a manager that has the key ring.
func (r *rotation) with(flags ...string) []string {
	return append([]string{"--service-account-private-key-file=", r.flag()}, flags...)
}

// rotate has the other key sign.
func (r *rotation) rotate(t *testing.T) {
	t.Helper()
	r.must(t, "rotate", "start", "--from-private-key-file="+r.next, "--cache-age=0s")
	r.must(t, "rotate", "activate", "--wait")
}

// holder calls kube-apiserver with one token, all the time.
type holder struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu       sync.Mutex
	calls    int
	failures []string
}

func (c *controlPlane) hold(t *testing.T, secret *corev1.Secret) *holder {
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

// end stops the calls and wants none to have failed.
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
func (c *controlPlane) replaced(t *testing.T, old *corev1.Secret) *corev1.Secret {
	t.Helper()
	want := old.Name + "/" + string(old.UID)
	var found *corev1.Secret
	c.awaitSecrets(t, old.Namespace, func(secrets []*corev1.Secret) error {
		i := slices.IndexFunc(secrets, func(s *corev1.Secret) bool { return s.Annotations[replacesAnnotation] == want })
		if i < 0 {
			return fmt.Errorf("nothing replaces %q", old.Name)
		}
		found = secrets[i]
		return hasToken(found)
	})
	c.awaitAccount(t, old.Namespace, old.Annotations[corev1.ServiceAccountNameKey], func(account *corev1.ServiceAccount) error {
		names := referenceNames(account)
		at, before := slices.Index(names, found.Name), slices.Index(names, old.Name)
		if at < 0 || before >= 0 && before < at {
			return fmt.Errorf("%q references %v, want %q before %q", account.Name, names, found.Name, old.Name)
		}
		return nil
	})
	return found
}

// kept checks that neither the token of a Secret has changed nor anything replaces it.
func (c *controlPlane) kept(t *testing.T, before *corev1.Secret) {
	t.Helper()
	now := c.getSecret(t, before.Namespace, before.Name)
	if now.UID != before.UID || !bytes.Equal(now.Data[corev1.ServiceAccountTokenKey], before.Data[corev1.ServiceAccountTokenKey]) {
		t.Errorf("secret %q was changed", before.Name)
	}
	secrets, err := c.client.CoreV1().Secrets(before.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range secrets.Items {
		if strings.HasPrefix(secret.Annotations[replacesAnnotation], before.Name+"/") {
			t.Errorf("secret %q was re-issued as %q", before.Name, secret.Name)
		}
	}
}

// awaitReissue awaits the count of Secrets in a state, or of those that are blocked for a reason.
func (m *manager) awaitReissue(t *testing.T, label, value string, secrets float64) {
	t.Helper()
	ctx := limited(t)
	poll(t, "await the count of "+value, func() error {
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
	namespace := r.namespace(t)
	secretOf := func(account, name string, changes ...change) *corev1.Secret {
		return tokenSecret(namespace, name, account, changes...)
	}

	// What users made, and the real KCM has filled with the old key.
	kcm := r.startKCM(t)
	users := r.createAccount(t, namespace, "users", referencing("plain"))
	r.createSecret(t, secretOf("users", "plain"))
	r.createSecret(t, secretOf("users", "asked", withAnnotation(reissueAnnotation, "side-by-side")))
	r.createSecret(t, secretOf("users", "in-place", withAnnotation(reissueAnnotation, "in-place")))
	r.createSecret(t, secretOf("users", "never", withAnnotation(reissueAnnotation, "never")))
	odd := r.createSecret(t, secretOf("users", "odd", withAnnotation(reissueAnnotation, "sometimes")))
	// Named as a token controller would, without managedFields: no proof. An empty entry clears them.
	r.createAccount(t, namespace, "named", referencing("named-token-x7k2p"))
	r.createSecret(t, secretOf("named", "named-token-x7k2p"))
	r.patchSecret(t, namespace, "named-token-x7k2p", `{"metadata":{"managedFields":[{}]}}`)
	invalid := r.createSecret(t, secretOf("named", "invalid", withAnnotation(reissueAnnotation, "side-by-side")))
	// What the real KCM made.
	r.createAccount(t, namespace, "managed", referencing("theirs"))
	if _, err := r.client.CoreV1().Secrets(namespace).Create(t.Context(), secretOf("managed", "theirs"), metav1.CreateOptions{FieldManager: "kube-controller-manager"}); err != nil {
		t.Fatal(err)
	}
	filled := map[string]*corev1.Secret{}
	for _, name := range []string{"plain", "asked", "in-place", "never", "odd", "named-token-x7k2p", "invalid", "theirs"} {
		filled[name] = r.awaitFilled(t, namespace, name)
		if keyID(t, filled[name]) != r.oldKey {
			t.Fatalf("%s is not signed by the old key", name)
		}
	}
	if _, err := kcm.Stop(); err != nil {
		t.Fatal(err)
	}
	r.patchSecret(t, namespace, invalid.Name, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, invalidSinceLabel, today(t)))

	m := r.manage(t, r.with("--token-secrets=auto")...)
	app := r.createAccount(t, namespace, "app")
	own := r.awaitOwn(t, namespace, "app")
	if keyID(t, own) != r.oldKey {
		t.Fatal("the manager does not sign with the old key")
	}
	r.accepted(t, filled["theirs"], r.getAccount(t, namespace, "managed"))
	holders := []*holder{r.hold(t, own), r.hold(t, filled["theirs"]), r.hold(t, filled["plain"]), r.hold(t, filled["asked"])}

	r.rotate(t)
	m.awaitSigner(t, r.newKey)
	for _, old := range []*corev1.Secret{own, filled["theirs"], filled["asked"]} {
		successor := r.replaced(t, old)
		if keyID(t, successor) != r.newKey || successor.Labels[autoCreatedLabel] == "" {
			t.Errorf("the successor of %s is not ours, or of another key", old.Name)
		}
		if len(successor.Data) != 3 {
			t.Errorf("the successor of %s has %d members of data, want 3", old.Name, len(successor.Data))
		}
		if now := r.getSecret(t, namespace, old.Name); !bytes.Equal(now.Data["token"], old.Data["token"]) {
			t.Errorf("the token of %s has changed", old.Name)
		}
	}
	r.accepted(t, r.replaced(t, own), app)

	// In place: the same Secret, another token, and the old one is refused.
	overwritten := r.awaitSecret(t, namespace, "in-place", func(s *corev1.Secret) error {
		if keyID(t, s) != r.newKey {
			return fmt.Errorf("%s has key %s", s.Name, keyID(t, s))
		}
		return nil
	})
	if overwritten.UID != filled["in-place"].UID {
		t.Error("the Secret is another one")
	}
	r.accepted(t, overwritten, users)
	r.refused(t, filled["in-place"].Data["token"])
	r.awaitEvent(t, aboutSecret(overwritten, "TokenOverwritten"), "refuses the former token")

	r.awaitWarning(t, aboutSecret(odd, "UnknownReissueMode"), `must be "side-by-side", "in-place" or "never"`)
	r.awaitEvent(t, aboutSecret(own, "TokenSecretReplaced"), "this token stays valid")
	m.awaitMetric(t, "sacm_token_reissue_secrets", devcluster.Labels{"state": "replaced"}, 3)
	for state, secrets := range map[string]float64{"blocked": 5, "due": 0, "filling": 0, "switching": 0} {
		m.awaitReissue(t, "state", state, secrets)
	}
	for reason, secrets := range map[string]float64{"user-made": 2, "never": 1, "unknown-mode": 1, "invalid": 1} {
		m.awaitReissue(t, "reason", reason, secrets)
	}
	for _, name := range []string{"plain", "named-token-x7k2p", "never", "odd", "invalid"} {
		r.kept(t, filled[name])
	}
	if names := referenceNames(r.getAccount(t, namespace, "app")); !slices.Equal(names, []string{r.replaced(t, own).Name, own.Name}) {
		t.Errorf("account app references %v", names)
	}

	// From here on everything is at rest, also for one who begins anew.
	r.must(t, "rotate", "complete")
	r.fence(t, m)
	before := r.versions(t, namespace)
	m.stop(t)
	m = r.manage(t, r.with("--token-secrets=auto")...)
	r.fence(t, m)
	if after := r.versions(t, namespace); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("a restart has changed something:\n%v\n%v", before, after)
	}

	// A rollback retires the new key: what has it is replaced once more, and nothing else.
	successor := r.replaced(t, own)
	r.must(t, "rollback")
	m.awaitSigner(t, r.oldKey)
	third := r.replaced(t, successor)
	if keyID(t, third) != r.oldKey {
		t.Error("the key of the third one is not the one that signs")
	}
	m.awaitIdle(t)
	if secrets := r.marked(t, namespace, "app"); len(secrets) != 3 {
		t.Errorf("account app has %d Secrets, want 3", len(secrets))
	}
	for _, h := range holders {
		h.end(t)
	}
}

// TestReissueGoesOn kills the leader while it works. The next one comes to the same end.
func TestReissueGoesOn(t *testing.T) {
	await.Long(t)
	t.Parallel()
	const accounts = 40
	r := newRotation(t)
	namespace := r.namespace(t)
	flags := r.with(append(shortLease("reissue"), "--token-secrets=auto")...)
	leader := r.manage(t, flags...)
	for i := range accounts {
		r.createAccount(t, namespace, fmt.Sprintf("app-%02d", i))
	}
	for i := range accounts {
		r.awaitOwn(t, namespace, fmt.Sprintf("app-%02d", i))
	}
	follower := r.manage(t, flags...)
	r.rotate(t)
	leader.awaitMetric(t, "sacm_token_reissues_total", devcluster.Labels{"result": "done"}, 5)
	leader.kill(t)
	if err := follower.AwaitLog(limited(t), leads); err != nil {
		t.Fatal(err)
	}
	for i := range accounts {
		name := fmt.Sprintf("app-%02d", i)
		r.awaitAccount(t, namespace, name, func(account *corev1.ServiceAccount) error {
			if len(account.Secrets) != 2 {
				return fmt.Errorf("%q references %v, want two", name, referenceNames(account))
			}
			return nil
		})
	}
	follower.awaitMetric(t, "sacm_token_reissue_secrets", devcluster.Labels{"state": "replaced"}, accounts)
	follower.awaitIdle(t)
	for i := range accounts {
		account := r.getAccount(t, namespace, fmt.Sprintf("app-%02d", i))
		if secrets := r.marked(t, namespace, account.Name); len(secrets) != 2 {
			t.Errorf("%s has %d Secrets, want 2", account.Name, len(secrets))
		}
		if first := r.getSecret(t, namespace, account.Secrets[0].Name); keyID(t, first) != r.newKey {
			t.Errorf("the first Secret of %s has the old key", account.Name)
		}
	}
}

// TestReplicasWithAnotherRing: one that comes with an older ring, or with another one of
// the same generation, is alarmed and touches nothing.
func TestReplicasWithAnotherRing(t *testing.T) {
	await.Long(t)
	t.Parallel()
	r := newRotation(t)
	old := file(t, "old.json", read(t, r.path))
	namespace := r.namespace(t)
	m := r.manage(t, r.with("--token-secrets=auto")...)
	r.createAccount(t, namespace, "app")
	own := r.awaitOwn(t, namespace, "app")
	r.rotate(t)
	m.awaitSigner(t, r.newKey)
	r.replaced(t, own)
	m.awaitIdle(t)
	before := r.versions(t, namespace)

	behind := r.manage(t, "--service-account-private-key-file=", "--service-account-key-ring="+old, "--token-secrets=auto")
	behind.awaitMetric(t, "sacm_key_ring_mismatch", devcluster.Labels{"verdict": "behind"}, 1)
	r.awaitWarning(t, aboutProcess("KeyRingMismatch"), "is older than that of host")
	if verbose, err := behind.Get(t.Context(), "/readyz?verbose"); err != nil || !strings.Contains(verbose, "key-ring ok: the key ring of this process (generation 1") {
		t.Errorf("readyz says %v:\n%s", err, verbose)
	}
	behind.awaitIdle(t)
	if after := r.versions(t, namespace); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("somebody has changed something:\n%v\n%v", before, after)
	}
	if n := m.metric(t, "sacm_key_ring_mismatch", nil); n != 0 {
		t.Error("the other one is alarmed too")
	}
	published, err := r.client.CoreV1().Secrets(metav1.NamespaceSystem).Get(t.Context(), keyRingSecret, metav1.GetOptions{})
	if err != nil || len(published.Data) != 3 { // with the version of the schema
		t.Errorf("published: %s (%v), want a line of each process", published.Data, err)
	}
	if secrets := r.marked(t, namespace, "app"); len(secrets) != 2 {
		t.Errorf("account app has %d Secrets, want 2", len(secrets))
	}
}

// TestEndOfAReplacedSecret: the cleaner marks and deletes what was replaced and is idle.
// Time cannot be turned, so the period is next to nothing.
func TestEndOfAReplacedSecret(t *testing.T) {
	await.Long(t)
	t.Parallel()
	r := newRotation(t)
	r.awaitTracking(t)
	r.trackSince(t, longAgo)
	now := today(t)
	namespace := r.namespace(t)
	m := r.manage(t, r.with("--token-secrets=auto")...)
	olds := map[string]*corev1.Secret{}
	for _, name := range []string{"idle", "used", "mounted"} {
		r.createAccount(t, namespace, name)
		olds[name] = r.awaitOwn(t, namespace, name)
	}
	r.createAccount(t, namespace, "users")
	r.createSecret(t, tokenSecret(namespace, "asked", "users", withAnnotation(reissueAnnotation, "side-by-side")))
	olds["users"] = r.awaitFilled(t, namespace, "asked")
	r.accepted(t, olds["used"], r.getAccount(t, namespace, "used"))
	r.createPod(t, namespace, using("one", inVolume(olds["mounted"].Name)))
	r.rotate(t)
	m.awaitSigner(t, r.newKey)
	successors := map[string]*corev1.Secret{}
	for name, old := range olds {
		successors[name] = r.replaced(t, old)
	}
	m.stop(t)

	flags := r.with("--token-secrets=auto", "--reissue-idle-period=1ms")
	m = r.manage(t, flags...)
	m.awaitRound(t)
	marks := r.marks(t, namespace)
	for name, want := range map[string]string{"idle": now, "users": now, "used": "", "mounted": ""} {
		if got := marks[olds[name].Name]; got != want {
			t.Errorf("the old Secret of %s is marked %q, want %q", name, got, want)
		}
		if got := marks[successors[name].Name]; got != "" {
			t.Errorf("the new Secret of %s is marked %q", name, got)
		}
	}
	r.refusedAsInvalid(t, olds["idle"])
	r.awaitEvent(t, aboutSecret(olds["idle"], "LegacyTokenMarkedInvalid"), "replaced by Secret")
	// A try of today keeps it; without, it goes when its period is over.
	for _, name := range []string{"idle", "users"} {
		r.patchSecret(t, namespace, olds[name].Name, fmt.Sprintf(`{"metadata":{"labels":{%q:%q,%q:null}}}`, invalidSinceLabel, longAgo, lastUsedLabel))
	}
	m.stop(t)
	m = r.manage(t, flags...)
	r.awaitGone(t, namespace, olds["idle"].Name, olds["users"].Name)
	r.awaitAccount(t, namespace, "idle", func(account *corev1.ServiceAccount) error {
		if names := referenceNames(account); len(names) != 1 || names[0] != successors["idle"].Name {
			return fmt.Errorf("%v", names)
		}
		return nil
	})
	r.fence(t, m)
	if secrets := r.marked(t, namespace, "idle"); len(secrets) != 1 || secrets[0].Name != successors["idle"].Name {
		t.Errorf("account idle has %d Secrets", len(secrets))
	}
	r.accepted(t, successors["idle"], r.getAccount(t, namespace, "idle"))
}

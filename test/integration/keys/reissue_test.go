// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

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

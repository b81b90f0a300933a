// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/controllers/controllertest"
	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/testkeys"
)

// TestAsk: whatever the answer is, no Secret is left, unless that is said.
func TestAsk(t *testing.T) {
	t.Parallel()
	lease := kcmLease()
	fails := func(verb string) func(*fake.Clientset) {
		return func(client *fake.Clientset) {
			client.PrependReactor(verb, "secrets",
				func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no") })
		}
	}
	leaves := func(client *fake.Clientset) { // a command that is killed deletes nothing
		killed := fake.NewClientset()
		killed.PrependWatchReactor("secrets", filling(t, killed, "kube-controller-manager", testkeys.P256()))
		fails("delete")(killed)
		_, _, _ = ask(t.Context(), killed, "kube-system", "default")
		left, err := killed.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{})
		testutil.Must(t, err)
		testutil.Must(t, client.Tracker().Add(&left.Items[0]))
	}
	for name, tc := range map[string]struct {
		by     string // the field manager that fills it, "" for none
		lease  *coordinationv1.Lease
		change func(*fake.Clientset)
		want   string
		err    string
	}{
		"Leading": {by: "kube-controller-manager", lease: lease, want: "kube-controller-manager on host cp-2"},
		"NoLease": {by: "kube-controller-manager", want: "kube-controller-manager"},
		"Nobody":  {},
		"Refused": {change: fails("create"), err: "see with which key the token controller signs: create a token Secret: no"},
		"Left":    {by: "k3s", change: fails("delete"), want: "k3s", err: "whose token is valid while it exists: no"},
		"Killed":  {by: "kube-controller-manager", change: leaves, want: "kube-controller-manager"},
		"Two":     {by: anotherCommand, err: "another command asks, too, and has deleted our Secret: run this again"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset()
			if tc.lease != nil {
				client = fake.NewClientset(tc.lease)
			}
			client.PrependWatchReactor("secrets", filling(t, client, tc.by, testkeys.P256()))
			if tc.change != nil {
				tc.change(client)
			}
			keyID, signer, err := ask(t.Context(), client, "kube-system", "default")
			if signer != tc.want || (keyID == "") != (tc.want == "") || (err == nil) != (tc.err == "") ||
				err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("key %q of %q, %v; want %q, %q", keyID, signer, err, tc.want, tc.err)
			}
			secrets, err := client.CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{})
			testutil.Must(t, err)
			left := len(secrets.Items) > 0
			testutil.Expect(t, left == strings.Contains(tc.err, "while it exists"), "a Secret is left: %t", left)
		})
	}
}

// kcmLease is that of the kube-controller-manager that leads.
func kcmLease() *coordinationv1.Lease {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-controller-manager"}}
	lease.Spec.HolderIdentity = new("cp-2_b2b6")
	return lease
}

// anotherCommand, in place of a token controller, deletes the Secret.
const anotherCommand = "another command"

// filling has a token controller fill the Secret that is watched. Without one the watch ends.
func filling(t *testing.T, client *fake.Clientset, by string, key []byte) clienttesting.WatchReactionFunc {
	return func(action clienttesting.Action) (bool, watch.Interface, error) {
		if by == "" {
			return true, watch.NewEmptyWatch(), nil
		}
		resource, namespace := action.GetResource(), action.GetNamespace()
		watching := testutil.Get(client.Tracker().Watch(resource, namespace))(t)
		name, _ := action.(clienttesting.WatchAction).GetWatchRestrictions().Fields.RequiresExactMatch("metadata.name")
		object := testutil.Get(client.Tracker().Get(resource, namespace, name))(t)
		if by == anotherCommand {
			testutil.Must(t, client.Tracker().Delete(resource, namespace, name))
			return true, watching, nil
		}
		secret := object.(*corev1.Secret).DeepCopy()
		secret.Data = map[string][]byte{
			corev1.ServiceAccountTokenKey: []byte(controllertest.Token(t, key, controllertest.UID, "mine")),
		}
		testutil.Must(t, client.Tracker().Update(resource, secret, namespace, metav1.UpdateOptions{FieldManager: by}))
		return true, watching, nil
	}
}

// TestNobodyAnswers: that no token controller fills the Secret says nothing about one that is known.
func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		objects []runtime.Object
		want    string
	}{
		"NeverThere": {},
		"Down":       {[]runtime.Object{kcmLease()}, "and kube-controller-manager may sign the tokens of Secrets with a key of its own"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset(tc.objects...)
			client.PrependWatchReactor("secrets", filling(t, client, "", nil))
			o := &Operator{
				File: ring.At(t.TempDir() + "/ring.json"), Progress: func(string, time.Duration) {},
				Cluster: &Cluster{Client: client, Namespace: "kube-system", Account: "default"},
			}
			signers, err := o.fills(t.Context())
			testutil.Expect(t, len(signers) <= 0 && (err == nil) == (tc.want == "") &&
				(err == nil || strings.Contains(err.Error(), tc.want)),
				"%v, %v; want %q", signers, err, tc.want)
		})
	}
}

// TestSignsRevoked: only a revoked key that kube-controller-manager signs with is an error, and without a revoked key no Secret
// is made.
func TestSignsRevoked(t *testing.T) {
	t.Parallel()
	signs := ring.KeyOf(testkeys.Parse(testkeys.P256())).ID
	for name, tc := range map[string]struct {
		by, revoked, want string
		asked             bool
	}{
		"NoneRevoked": {by: "kube-controller-manager"},
		"Another":     {by: "kube-controller-manager", revoked: "another", asked: true},
		"KCM": {
			by: "kube-controller-manager", revoked: signs, asked: true, want: "kube-controller-manager signs the tokens of Secrets with",
		},
		"Ours": {by: "sa-controller-manager", revoked: signs, asked: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, asked := fake.NewClientset(), false
			client.PrependWatchReactor("secrets", filling(t, client, tc.by, testkeys.P256()))
			testutil.Must(t, hosts.Edit(t.Context(), client, func(p *hosts.Published) error {
				if tc.revoked != "" {
					p.Removed = ring.Revocations{{ID: tc.revoked, Digest: tc.revoked, Reason: ring.Revoked}}
				}
				return nil
			}))
			client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
				asked = true
				return false, nil, nil
			})
			err := (&Operator{
				File: ring.At(t.TempDir() + "/ring.json"), Progress: func(string, time.Duration) {},
				Cluster: &Cluster{Client: client, Namespace: "kube-system", Account: "default"},
			}).SignsRevoked(t.Context())
			testutil.Expect(t, asked == tc.asked && (err == nil) == (tc.want == "") &&
				(err == nil || strings.HasPrefix(err.Error(), tc.want)),
				"asked: %t, %v; want %t, %q", asked, err, tc.asked, tc.want)
		})
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/rotation"
	"sa-controller-manager/signing/testkeys"
)

// toSigner rotates the ring to a key that another process has, under its derived ID or another one.
func (p *rotated) toSigner(t *testing.T, id string) signing.PublicKey {
	t.Helper()
	key := testkeys.Parse(testkeys.P384()).Public()
	if id != "" {
		key.ID = id
	}
	remote := signing.RemoteKey("hsm", key, nil)
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for i, transition := range []func(rotation.State) (rotation.State, error){
		func(s rotation.State) (rotation.State, error) { return rotation.Complete(s, now, rotation.Policy{}) },
		func(s rotation.State) (rotation.State, error) {
			return rotation.Publish(s, rotation.KeyOf(remote), now, rotation.Policy{})
		},
		func(s rotation.State) (rotation.State, error) {
			return rotation.Activate(s, now, rotation.Policy{}, true)
		},
	} {
		testutil.Must(t, p.ring.Update(int64(3+i), transition))
	}
	return key
}

// TestHandbackOfARemoteKey needs no signer, no manager and no kube-apiserver.
func TestHandbackOfARemoteKey(t *testing.T) {
	t.Parallel()
	const foreign = "hsm/1"
	for name, tc := range map[string]struct {
		id     string
		newKey bool
		skip   bool
		want   string
	}{
		"NoPrivateHalf": {want: "signs now, and kep740:hsm has its private half, which kube-apiserver needs in a file; rotate to a key in a file first, or if that process is lost, --new-key writes one"},
		"ForeignID":     {id: foreign, want: "key hsm/1 has an ID that kep740:hsm has chosen, and kube-apiserver with key files refuses all its tokens"},
		"NewKey":        {newKey: true},
		"NewKeyForeign": {id: foreign, newKey: true, want: "key hsm/1 has an ID that kep740:hsm has chosen"},
		"Skipped":       {id: foreign, newKey: true, skip: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newRotated(t, true)
			remote := p.toSigner(t, tc.id)
			p.config.NewKey, p.config.SkipKeyCheck, p.config.Clock = tc.newKey, tc.skip, clock.RealClock{}
			before := p.all(t)
			err := Handback(t.Context(), p.config) // a dry run
			wantError(t, "", err, tc.want)
			if tc.want != "" {
				return
			}
			if strings.Contains(p.out.String(), "PRIVATE KEY") {
				t.Error("the plan prints a private key")
			}
			p.writeSteps(t, handback, 1)
			signer := p.signingKey(t)
			keys, err := signing.ParsePublicKeys(read(t, p.pki+"/sa.pub"))
			testutil.Must(t, err)
			verifies := map[string]bool{}
			for _, key := range keys {
				verifies[key.ID] = true
			}
			for _, id := range []string{signer.ID, keyID(t, testkeys.RSA2048()), keyID(t, testkeys.P256())} {
				if !verifies[id] {
					t.Errorf("sa.pub does not hold key %s", id)
				}
			}
			if verifies[remote.ID] != (tc.id == "") || signer.ID == keyID(t, testkeys.RSA2048()) {
				t.Errorf("key %s signs, sa.pub holds %v", signer.ID, verifies)
			}
			kept := false
			for file, content := range p.all(t) {
				kept = kept || strings.HasPrefix(file, "backup/sa.key.") && content == before["pki/sa.key"]
			}
			if !kept {
				t.Error("the previous sa.key is nowhere")
			}
			if p.writeSteps(t, handback, 1); signer.ID != p.signingKey(t).ID {
				t.Error("a second call has made another key")
			}
		})
	}
}

func (p *rotated) signingKey(t *testing.T) signing.PublicKey {
	t.Helper()
	return testkeys.Parse(read(t, p.pki+"/sa.key")).Public()
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"slices"
	"strings"
	"testing"
	"time"

	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// theRing is that of a rotated node.
const theRing = "--service-account-key-ring=/etc/kubernetes/pki/sa-keys/ring.json"

// rotated is a control plane that was taken over and whose ring has gone from RSA to P-256 since.
// sa.key and sa.pub are what they were before.
type rotated struct {
	*controlPlane

	ring *ring.File
}

func newRotated(t *testing.T, signer bool) *rotated {
	t.Helper()
	p := &rotated{controlPlane: newControlPlane(t, "v1.37")}
	p.ring = ring.At(p.dir + "/pki/sa-keys/ring.json")
	p.write(t, "pki/sa.pub", public(t, testkeys.RSA2048()))
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	testutil.Must(t, p.ring.Init(testkeys.Parse(testkeys.RSA2048()), nil, new(ring.KeyOf(testkeys.Parse(testkeys.P256()))), now))
	p.config.ExternalSigner = signer
	p.writeSteps(t, takeover, 3)
	p.config.ExternalSigner, p.config.SkipKeyCheck = false, false
	p.write(t, ownFile, replaced(t, []byte(p.files(t)[ownFile]), theKey, theRing))
	testutil.Must(t, p.ring.Update(1, func(s ring.State) (ring.State, error) { return ring.Rotate(s, nil, now) }))
	return p
}

// TestDroppedRing: key files that have missed a rotation do not take the place of a key ring.
func TestDroppedRing(t *testing.T) {
	t.Parallel()
	p := newRotated(t, true)
	p.config.Rewrite, p.config.Pod.extraArgs = true, []string{component.Assign(component.KeyRingFlag, "")}
	p.refuses(t, "they have missed a rotation", Takeover, "our process does not hold key "+keyID(t, testkeys.P256()))
	p.write(t, "pki/sa.key", testkeys.P256())
	p.write(t, "pki/sa.pub", slices.Concat(public(t, testkeys.P256()), public(t, testkeys.RSA2048())))
	p.writeSteps(t, takeover, 3)
}

// TestHandbackOfStaleKeys: a handback that would break tokens is refused before anything is changed.
func TestHandbackOfStaleKeys(t *testing.T) {
	t.Parallel()
	const verifying, signs = "/etc/kubernetes/pki/sa.pub", "ROOT/etc/kubernetes/pki/sa.key"
	rsa, ecdsa := keyID(t, testkeys.RSA2048()), keyID(t, testkeys.P256())
	type changes map[string][]byte // by file; nil removes it
	missing := verifying + " does not hold key " + ecdsa + " (ES256), and kube-apiserver would refuse all its tokens afterwards"
	otherKey := func(holds, component string) string {
		return signs + " holds key " + holds + ", and " + component + " would sign with it afterwards; key " + ecdsa +
			" (ES256) signs now"
	}
	cases := map[string]struct {
		reason string
		stale  bool // the two files have missed the rotation
		next   bool // the ring has a next key
		files  changes
		own    string // arguments of our manifest in place of that of the ring
		copied bool   // a copy of our manifest is in the backup
		steps  []string
		skip   bool
		want   string   // "" if it is done
		prints []string // if it is done
	}{
		"Stale":    {stale: true, want: missing},
		"UpToDate": {},
		"RetiredKeyMissing": {
			reason: "its tokens live", files: changes{"pki/sa.pub": public(t, testkeys.P256())},
			want: verifying + " does not hold key " + rsa + " (RS256)",
		},
		"LateHost": {
			reason: "other hosts sign with the next key", next: true,
			want: verifying + " does not hold key " + keyID(t, testkeys.P384()) + " (ES384)",
		},
		"FormerPrivateKey": {
			reason: "it would sign again", files: changes{"pki/sa.key": testkeys.RSA2048()}, want: otherKey(rsa, component.APIServer),
		},
		"ControllerManagerAlone": {
			reason: "it says what that would do", stale: true, steps: []string{StepControllerManager}, want: otherKey(rsa,
				component.ControllerManager),
		},
		"NoPrivateKey": {
			files: changes{"pki/sa.key": nil},
			want: "kube-apiserver would sign nothing: it gets back --service-account-signing-key-file: open " + signs +
				": no such file or directory",
		},
		"NotAKey": {files: changes{"pki/sa.key": []byte("x")}, want: signs + ": found "},
		"RingIsDamaged": {
			files: changes{"pki/sa-keys/ring.json": []byte("{")},
			want:  "the keys in use are unknown: our --service-account-key-ring: ROOT/etc/kubernetes/pki/sa-keys/ring.json: ",
		},
		"NoKeysAndOurManifestIsGone": {
			reason: "what kube-apiserver gets back must be there, whichever key signs", stale: true,
			files: changes{ownFile: nil, "pki/sa.pub": nil},
			want:  "kube-apiserver would not start: it gets back --service-account-key-file: open ROOT/etc/kubernetes/pki/sa.pub: ",
		},
		"OurManifestIsGoneButItsCopy": {
			stale: true, files: changes{ownFile: nil}, copied: true, want: verifying + " does not hold key " + ecdsa,
		},
		"OneKeyFile": {
			reason: "a rotation without a key ring", stale: true, own: component.Assign(component.KeyFlag, "/etc/kubernetes/pki/ours.key"),
			want: missing,
		},
		"VerifiedByUsAlone": {
			reason: "our process takes tokens of it, so there may be some", own: theRing + "\n    - " +
				component.Assign(component.VerifyKeyFlag, "/etc/kubernetes/pki/old.pub"),
			files: changes{"pki/old.pub": public(t, testkeys.P384())},
			want:  verifying + " does not hold key " + keyID(t, testkeys.P384()) + " (ES384)",
		},
		"OtherSteps": {reason: "it gives no key back", stale: true, steps: []string{StepManager}},
		"OurManifestsGone": {
			reason: "the rest of a handback", files: changes{ownFile: nil}, prints: []string{"The keys in use are those of "},
		},
		"Skipped": {
			reason: "the operator insists, and reads which tokens die", stale: true, files: changes{"pki/sa.key": nil}, skip: true,
			prints: []string{"\nSkipped: " + missing, "\nSkipped: kube-controller-manager would sign nothing: it gets back "},
		},
	}
	for name, tc := range cases {
		for mode, signer := range map[string]bool{"": false, "WithSigner": true} {
			t.Run(name+mode, func(t *testing.T) {
				t.Parallel()
				p := newRotated(t, signer)
				if !tc.stale { // what docs/rotation.md says
					p.write(t, "pki/sa.key", testkeys.P256())
					p.write(t, "pki/sa.pub", slices.Concat(public(t, testkeys.P256()), public(t, testkeys.RSA2048())))
				}
				if tc.next {
					testutil.Must(t, p.ring.Update(2, func(s ring.State) (ring.State, error) {
						return ring.Next(s, ring.KeyOf(testkeys.Parse(testkeys.P384())), time.Now())
					}))
				}
				if tc.own != "" {
					p.write(t, ownFile, replaced(t, []byte(p.files(t)[ownFile]), theRing, tc.own))
				}
				if tc.copied {
					p.write(t, "sa-controller-manager-backup/sa-controller-manager.yaml", []byte(p.files(t)[ownFile]))
				}
				for file, data := range tc.files {
					if data == nil {
						p.remove(t, file)
					} else {
						p.write(t, file, data)
					}
				}
				p.config.Steps, p.config.SkipKeyCheck = tc.steps, tc.skip
				p.refuses(t, tc.reason, Handback, p.located(tc.want)) // a dry run
				testutil.Expect(t, tc.want == "" || p.out.Len() <= 0, "printed: %s", &p.out)
				for _, want := range tc.prints {
					testutil.Expect(t, strings.Contains(p.out.String(), p.located(want)), "it does not print %q:\n%s", p.located(want),
						&p.out)
				}
			})
		}
	}
}

func keyID(t *testing.T, data []byte) string { t.Helper(); return testkeys.Parse(data).ID() }

func public(t *testing.T, data []byte) []byte {
	t.Helper()
	return testutil.Get(signing.EncodePublicKeys(testkeys.Parse(data).Public()))(t)
}

// toSigner rotates the ring to a key that another process has, under its derived ID or another one.
func (p *rotated) toSigner(t *testing.T, id string) signing.PublicKey {
	t.Helper()
	key := testkeys.Parse(testkeys.P384()).Public()
	if id != "" {
		key.ID = id
	}
	remote := signing.RemoteKey("hsm", key, nil)
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for i, transition := range []func(ring.State) (ring.State, error){
		func(s ring.State) (ring.State, error) { return ring.Next(s, ring.KeyOf(remote), now) },
		func(s ring.State) (ring.State, error) { return ring.Rotate(s, nil, now) },
	} {
		testutil.Must(t, p.ring.Update(int64(2+i), transition))
	}
	return key
}

// TestHandbackOfARemoteKey needs no signer, no manager and no kube-apiserver.
func TestHandbackOfARemoteKey(t *testing.T) {
	t.Parallel()
	const foreign = "hsm/1"
	for name, tc := range map[string]struct {
		id   string
		skip bool
		want string
	}{
		"NoPrivateHalf": {
			want: "signs now, and kep740:hsm has its private half, which kube-apiserver needs in a file; rotate to a key in a file " +
				"first, or if that process is lost, \"keys export --kubeadm --new-key\" writes one",
		},
		"ForeignID": {
			id: foreign, want: "key hsm/1 has an ID that kep740:hsm has chosen, and kube-apiserver with key files refuses all its tokens",
		},
		"Skipped": {id: foreign, skip: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newRotated(t, true)
			p.toSigner(t, tc.id)
			p.config.SkipKeyCheck = tc.skip
			wantError(t, "", Handback(t.Context(), p.config), tc.want) // a dry run
		})
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// TestHandbackOfRevokedKeys: no file and no flag gives kube-apiserver a key back that was revoked. The ring has revoked the first key.
func TestHandbackOfRevokedKeys(t *testing.T) {
	t.Parallel()
	rsa := keyID(t, testkeys.RSA2048())
	exported := func(t *testing.T, p *rotated) {
		p.write(t, "pki/sa.key", testkeys.P256())
		p.write(t, "pki/sa.pub", public(t, testkeys.P256()))
	}
	for name, tc := range map[string]struct {
		reason string
		remote bool // another process signs since
		files  func(*testing.T, *rotated)
		want   string
	}{
		"Exported": {files: exported},
		"SecondFile": {
			reason: "of an earlier rotation by hand", files: func(t *testing.T, p *rotated) {
				exported(t, p)
				p.write(t, "pki/old-sa.pub", public(t, testkeys.RSA2048()))
			}, want: "ROOT/etc/kubernetes/pki/old-sa.pub holds key " + rsa +
				", which was revoked: kube-apiserver would accept its tokens again",
		},
		"Appended": {
			reason: "the operator has added the new key in place of replacing the file", files: func(t *testing.T, p *rotated) {
				p.write(t, "pki/sa.key", testkeys.P256())
				p.write(t, "pki/sa.pub", slices.Concat(public(t, testkeys.RSA2048()), public(t, testkeys.P256())))
			}, want: "ROOT/etc/kubernetes/pki/sa.pub holds key " + rsa + ", which was revoked",
		},
		"NotExported": {
			reason: "a second node, which has applied the revocation without a change of its file", files: func(*testing.T, *rotated) {},
			want: rsa + ", which was revoked",
		},
		"PrivateKey": {
			reason: "the leaked one would sign", remote: true, files: func(t *testing.T, p *rotated) {
				p.write(t, "pki/sa.pub", slices.Concat(public(t, testkeys.P256()), public(t, testkeys.P384())))
			}, want: "ROOT/etc/kubernetes/pki/sa.key holds key " + rsa + ", which was revoked",
		},
		"NewKey": {
			reason: "as keys export --new-key writes it", remote: true, files: func(t *testing.T, p *rotated) {
				p.write(t, "pki/sa.key", testkeys.P256Other())
				p.write(t, "pki/sa.pub",
					slices.Concat(public(t, testkeys.P256Other()), public(t, testkeys.P256()), public(t, testkeys.P384())))
			},
		},
		"NewKeyIsNotVerified": {
			reason: "kube-apiserver does not know the key that would sign", remote: true, files: func(t *testing.T, p *rotated) {
				p.write(t, "pki/sa.key", testkeys.P256Other())
				p.write(t, "pki/sa.pub", slices.Concat(public(t, testkeys.P256()), public(t, testkeys.P384())))
			}, want: "kep740:hsm has its private half, which kube-apiserver needs in a file",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newRotated(t, true)
			if name == "SecondFile" {
				const verifies = "--service-account-key-file=/etc/kubernetes/pki/"
				p.config.SkipKeyCheck = true
				p.writeSteps(t, handback, all)
				p.change(t, "kube-apiserver", verifies+"sa.pub", verifies+"sa.pub\n    - "+verifies+"old-sa.pub")
				p.config.ExternalSigner, p.config.Rewrite = true, true
				p.write(t, "pki/old-sa.pub", public(t, testkeys.RSA2048()))
				p.writeSteps(t, takeover, all)
				p.write(t, ownFile, replaced(t, []byte(p.files(t)[ownFile]), theKey, theRing))
				p.config.ExternalSigner, p.config.Rewrite = false, false
			}
			generation := int64(2)
			if tc.remote {
				p.toSigner(t, "")
				generation = 4
			}
			testutil.Must(t, p.ring.Update(generation, func(s ring.State) (ring.State, error) {
				return ring.Revoke(s, []ring.Removed{revocation(testkeys.Parse(testkeys.RSA2048()).Public())}, nil, nil, time.Now())
			}))
			tc.files(t, p)
			for _, skip := range []bool{false, true} {
				p.config.SkipKeyCheck = skip
				if name == "NewKeyIsNotVerified" && skip {
					continue // the operator insists
				}
				p.refuses(t, tc.reason, Handback, p.located(tc.want)) // a dry run
			}
		})
	}
}

func revocation(key signing.PublicKey) ring.Removed {
	return ring.Removed{ID: key.ID, Digest: key.Digest(), Reason: ring.Revoked}
}

// TestHandbackOfALateHost: its ring file lacks what another host has revoked and published, and it verifies without that key.
// So it is also where a file of further keys is gone, and the operator insists.
func TestHandbackOfALateHost(t *testing.T) {
	t.Parallel()
	revoked := testkeys.Parse(testkeys.RSA2048()).Public()
	for name, late := range map[string]bool{"Late": true, "VerifyFileIsGone": false} {
		p := newRotated(t, false)
		p.write(t, "pki/sa.key", testkeys.P256())
		p.write(t, "pki/sa.pub", slices.Concat(public(t, testkeys.P256()), public(t, testkeys.RSA2048())))
		if late {
			p.config.Client = fake.NewClientset(clitest.IdentityLeases("n")...)
			testutil.Must(t, hosts.Edit(t.Context(), p.config.Client, func(published *hosts.Published) error {
				published.Removed = ring.Revocations{revocation(revoked)}
				return nil
			}))
		} else {
			testutil.Must(t, p.ring.Update(2, func(s ring.State) (ring.State, error) {
				return ring.Revoke(s, []ring.Removed{revocation(revoked)}, nil, nil, time.Now())
			}))
			p.write(t, ownFile, replaced(t, []byte(p.files(t)[ownFile]), theRing,
				theRing+"\n    - "+component.Assign(component.VerifyKeyFlag, "/etc/kubernetes/pki/gone.pub")))
		}
		for _, p.config.SkipKeyCheck = range []bool{false, true} {
			p.refuses(t, name, Handback, "holds key "+revoked.ID+", which was revoked")
		}
	}
}

// TestHandbackNeedsTheAdmissionFile: kube-apiserver would not start without the operator's file.
func TestHandbackNeedsTheAdmissionFile(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37", "--admission-control-config-file=/etc/kubernetes/pki/admission.yaml")
	p.write(t, "pki/admission.yaml", []byte(admissionHead))
	p.writeSteps(t, takeover, all)
	p.remove(t, "pki/admission.yaml")
	p.config.SkipKeyCheck = false
	writeFiles(t, p.dir+"/pki")
	p.refuses(t, "", Handback,
		"kube-apiserver would not start: it gets back --admission-control-config-file=/etc/kubernetes/pki/admission.yaml")
}

// TestUnused: our process stays while controllers would run nowhere, or the record of what it replaces is lost.
func TestUnused(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.36")
	p.writeSteps(t, takeover, all)
	p.config.Steps = []string{StepAPIServer}
	p.writeSteps(t, handback, all)
	wantError(t, "kube-controller-manager is not handed back", p.config.unused(t.Context()), "runs in our process alone")
	p.config.Steps = nil
	p.remove(t, "sa-controller-manager-backup/record.json",
		"sa-controller-manager-patches/kube-controller-manager-sa-controller-manager+json.yaml")
	p.refuses(t, "another takeover", Takeover, "there is a last --service-account-private-key-file=, but no record")
	p.refuses(t, "a handback", Handback, "there is a last --service-account-private-key-file=, but no record")
}

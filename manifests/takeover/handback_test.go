// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/takeover/takeovertest"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// TestHandbackOfADeadProcess is the whole way back of a node whose process is dead, and whose
// kube-apiserver is away for a while: nothing is awaited that the process would have to do.
func TestHandbackOfADeadProcess(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*testing.T, *controlPlane){
		"CrashLooping": func(*testing.T, *controlPlane) {}, // its manifest is there
		"Gone":         func(t *testing.T, p *controlPlane) { p.Remove(t, ownFile) },
		"Damaged":      func(t *testing.T, p *controlPlane) { p.Write(t, ownFile, []byte("kind: [")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newControlPlane(t, "v1.37")
			before := p.Files(t)
			p.writeSteps(t, takeover, all)
			p.Write(t, "sa-controller-manager-backup/sa-controller-manager.yaml", []byte(p.Files(t)[ownFile])) // it names the port
			prepare(t, p)
			client := fake.NewClientset()
			p.kubelet(t, client)
			p.config.DryRun, p.config.Client, p.config.StepTimeout = false, client, 10*time.Second
			testutil.Must(t, Handback(t.Context(), p.config))
			testutil.Check(t, "files", before, p.withoutBackups(t))
		})
	}
}

// kubelet answers for the Pods of kube-system: it shows what the manifests say. Every third request
// fails.
func (p *controlPlane) kubelet(t *testing.T, client *fake.Clientset) {
	t.Helper()
	show := func(name string) *corev1.Pod {
		m := testutil.Get(component.Files{Name: name, Manifest: []byte(p.Files(t)["manifests/"+name+".yaml"])}.Parse())(t)
		return mirror(name, "n", true, m.Command()...)
	}
	calls := 0
	client.PrependReactor("*", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if calls++; calls%3 == 0 {
			return true, nil, errors.New("connection refused")
		}
		get, ok := action.(clienttesting.GetAction)
		if !ok {
			return true, &corev1.PodList{Items: []corev1.Pod{*show(component.APIServer), *show(component.ControllerManager)}}, nil
		}
		name := strings.TrimSuffix(get.GetName(), "-n")
		if name == manager {
			return true, nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
		}
		return true, show(name), nil
	})
}

// TestHandbackForgetsTheRing: no rotation waits for a host without our process.
func TestHandbackForgetsTheRing(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	host := testutil.Get(hosts.HostName())(t)
	client := fake.NewClientset(clitest.IdentityLeases(host)...)
	p.config.Client = client
	testutil.Must(t, p.config.forgetRing(t.Context())) // nothing is published
	testutil.Must(t, hosts.Edit(t.Context(), client, func(p *hosts.Published) error {
		for _, name := range []string{host, "another"} {
			p.Entries = append(p.Entries, hosts.Entry{Host: name, History: []string{"1:x"}})
		}
		return nil
	}))
	for range 2 {
		testutil.Must(t, p.config.forgetRing(t.Context()))
	}
	left, err := hosts.Fetch(t.Context(), client)
	testutil.Expect(t, err == nil && len(left.Entries) == 1 && left.Entries[0].Host == "another", "left are %+v, %v", left.Entries, err)
}

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
	p.ring = ring.At(p.Dir + "/pki/sa-keys/ring.json")
	p.Write(t, "pki/sa.pub", public(t, testkeys.RSA2048()))
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	testutil.Must(t, p.ring.Init(testkeys.Parse(testkeys.RSA2048()), nil, new(ring.KeyOf(testkeys.Parse(testkeys.P256()))), now))
	p.config.ExternalSigner = signer
	p.writeSteps(t, takeover, 3)
	p.config.ExternalSigner, p.config.SkipKeyCheck = false, false
	p.Write(t, ownFile, takeovertest.Replaced(t, []byte(p.Files(t)[ownFile]), theKey, theRing))
	testutil.Must(t, p.ring.Update(1, func(s ring.State) (ring.State, error) { return ring.Rotate(s, nil, now) }))
	return p
}

// TestDroppedRing: key files that have missed a rotation do not take the place of a key ring.
func TestDroppedRing(t *testing.T) {
	t.Parallel()
	p := newRotated(t, true)
	p.config.Rewrite, p.config.Pod.ExtraArgs = true, []string{component.Assign(component.KeyRingFlag, "")}
	p.refuses(t, "they have missed a rotation", Run, "our process does not hold key "+keyID(t, testkeys.P256()))
	p.Write(t, "pki/sa.key", testkeys.P256())
	p.Write(t, "pki/sa.pub", slices.Concat(public(t, testkeys.P256()), public(t, testkeys.RSA2048())))
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
					p.Write(t, "pki/sa.key", testkeys.P256())
					p.Write(t, "pki/sa.pub", slices.Concat(public(t, testkeys.P256()), public(t, testkeys.RSA2048())))
				}
				if tc.next {
					testutil.Must(t, p.ring.Update(2, func(s ring.State) (ring.State, error) {
						return ring.Next(s, ring.KeyOf(testkeys.Parse(testkeys.P384())), time.Now())
					}))
				}
				if tc.own != "" {
					p.Write(t, ownFile, takeovertest.Replaced(t, []byte(p.Files(t)[ownFile]), theRing, tc.own))
				}
				if tc.copied {
					p.Write(t, "sa-controller-manager-backup/sa-controller-manager.yaml", []byte(p.Files(t)[ownFile]))
				}
				for file, data := range tc.files {
					if data == nil {
						p.Remove(t, file)
					} else {
						p.Write(t, file, data)
					}
				}
				p.config.Steps, p.config.SkipKeyCheck = tc.steps, tc.skip
				p.refuses(t, tc.reason, Handback, p.Located(tc.want)) // a dry run
				testutil.Expect(t, tc.want == "" || p.out.Len() <= 0, "printed: %s", &p.out)
				for _, want := range tc.prints {
					testutil.Expect(t, strings.Contains(p.out.String(), p.Located(want)), "it does not print %q:\n%s", p.Located(want),
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

// TestHandbackOfRevokedKeys: no file and no flag gives kube-apiserver a key back that was revoked. The ring has revoked the first key.
func TestHandbackOfRevokedKeys(t *testing.T) {
	t.Parallel()
	rsa := keyID(t, testkeys.RSA2048())
	exported := func(t *testing.T, p *rotated) {
		p.Write(t, "pki/sa.key", testkeys.P256())
		p.Write(t, "pki/sa.pub", public(t, testkeys.P256()))
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
				p.Write(t, "pki/old-sa.pub", public(t, testkeys.RSA2048()))
			}, want: "ROOT/etc/kubernetes/pki/old-sa.pub holds key " + rsa +
				", which was revoked: kube-apiserver would accept its tokens again",
		},
		"Appended": {
			reason: "the operator has added the new key in place of replacing the file", files: func(t *testing.T, p *rotated) {
				p.Write(t, "pki/sa.key", testkeys.P256())
				p.Write(t, "pki/sa.pub", slices.Concat(public(t, testkeys.RSA2048()), public(t, testkeys.P256())))
			}, want: "ROOT/etc/kubernetes/pki/sa.pub holds key " + rsa + ", which was revoked",
		},
		"NotExported": {
			reason: "a second node, which has applied the revocation without a change of its file", files: func(*testing.T, *rotated) {},
			want: rsa + ", which was revoked",
		},
		"PrivateKey": {
			reason: "the leaked one would sign", remote: true, files: func(t *testing.T, p *rotated) {
				p.Write(t, "pki/sa.pub", slices.Concat(public(t, testkeys.P256()), public(t, testkeys.P384())))
			}, want: "ROOT/etc/kubernetes/pki/sa.key holds key " + rsa + ", which was revoked",
		},
		"NewKey": {
			reason: "as keys export --new-key writes it", remote: true, files: func(t *testing.T, p *rotated) {
				p.Write(t, "pki/sa.key", testkeys.P256Other())
				p.Write(t, "pki/sa.pub",
					slices.Concat(public(t, testkeys.P256Other()), public(t, testkeys.P256()), public(t, testkeys.P384())))
			},
		},
		"NewKeyIsNotVerified": {
			reason: "kube-apiserver does not know the key that would sign", remote: true, files: func(t *testing.T, p *rotated) {
				p.Write(t, "pki/sa.key", testkeys.P256Other())
				p.Write(t, "pki/sa.pub", slices.Concat(public(t, testkeys.P256()), public(t, testkeys.P384())))
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
				p.Change(t, "kube-apiserver", verifies+"sa.pub", verifies+"sa.pub\n    - "+verifies+"old-sa.pub")
				p.config.ExternalSigner, p.config.Rewrite = true, true
				p.Write(t, "pki/old-sa.pub", public(t, testkeys.RSA2048()))
				p.writeSteps(t, takeover, all)
				p.Write(t, ownFile, takeovertest.Replaced(t, []byte(p.Files(t)[ownFile]), theKey, theRing))
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
				p.refuses(t, tc.reason, Handback, p.Located(tc.want)) // a dry run
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
		p.Write(t, "pki/sa.key", testkeys.P256())
		p.Write(t, "pki/sa.pub", slices.Concat(public(t, testkeys.P256()), public(t, testkeys.RSA2048())))
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
			p.Write(t, ownFile, takeovertest.Replaced(t, []byte(p.Files(t)[ownFile]), theRing,
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
	p.Write(t, "pki/admission.yaml", []byte(admissionHead))
	p.writeSteps(t, takeover, all)
	p.Remove(t, "pki/admission.yaml")
	p.config.SkipKeyCheck = false
	takeovertest.WriteFiles(t, p.Dir+"/pki")
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
	p.Remove(t, "sa-controller-manager-backup/record.json",
		"sa-controller-manager-patches/kube-controller-manager-sa-controller-manager+json.yaml")
	p.refuses(t, "another takeover", Run, "there is a last --service-account-private-key-file=, but no record")
	p.refuses(t, "a handback", Handback, "there is a last --service-account-private-key-file=, but no record")
}

// TestTakeoverWithoutItsRecord: the backup, which is the only copy of the key flags then, is not written over.
func TestTakeoverWithoutItsRecord(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	p.onlySigner()
	p.writeSteps(t, takeover, all)
	p.Remove(t, "sa-controller-manager-backup/record.json", apiServerPatch)
	p.refuses(t, "again", Run, "there is --"+endpointFlag+"="+manifests.SignerSocket+", but no record of what a takeover has changed")
}

// TestSignerAfterEverything: a takeover takes nothing back.
func TestSignerAfterEverything(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.36")
	p.writeSteps(t, takeover, all)
	p.onlySigner()
	p.refuses(t, "back", Run, "our process is more than the signer on this node; first run: kubeadm handback")
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod/staticpodtest"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/remote"
	"sa-controller-manager/signing/ring"
	"sa-controller-manager/signing/testkeys"
)

// renderSigner is our manifest as far as this package reads it.
func renderSigner(o manifests.StaticPodOptions) ([]byte, error) {
	text := "kind: Pod\nspec:\n  containers:\n  - image: " + o.Image +
		"\n    args:\n    - --service-account-private-key-file=/etc/kubernetes/pki/sa.key\n"
	for _, arg := range o.Args {
		text += "    - " + arg + "\n"
	}
	return []byte(text), nil
}

func newSigningControlPlane(t *testing.T) *controlPlane {
	t.Helper()
	p := newControlPlane(t, "v1.37")
	p.config.Render = renderSigner
	return p
}

// TestSignerTakeover is what becomes of kubeadm's manifest.
func TestSignerTakeover(t *testing.T) {
	t.Parallel()
	p := newSigningControlPlane(t)
	p.config.ExternalSigner = true
	before := string(staticpodtest.Read(t, p.config.manifest(component.APIServer)))
	p.writeSteps(t, takeover, 3)

	want := before
	for old, replacement := range map[string]string{
		"    - --service-account-key-file=/etc/kubernetes/pki/sa.pub\n":         "",
		"    - --service-account-signing-key-file=/etc/kubernetes/pki/sa.key\n": "",
		"    image: registry.k8s.io": "    - --disable-admission-plugins=ServiceAccount\n" +
			"    - --service-account-signing-endpoint=/run/sa-controller-manager/signer.sock\n    image: registry.k8s.io",
		"    volumeMounts:\n": "    volumeMounts:\n    - mountPath: /run/sa-controller-manager\n      name: " +
			"sa-controller-manager\n      readOnly: true\n",
		"  volumes:\n": "  volumes:\n  - hostPath:\n      path: /run/sa-controller-manager\n      type: DirectoryOrCreate\n" +
			"    name: sa-controller-manager\n",
	} {
		if strings.Count(want, old) != 1 {
			t.Fatalf("%q is not there once", old)
		}
		want = strings.Replace(want, old, replacement, 1)
	}
	testutil.Check(t, "kube-apiserver's manifest", want, string(staticpodtest.Read(t, p.config.manifest(component.APIServer))))
}

// TestSignerHandbackRestores wants the manifests as they were, whichever way led there.
func TestSignerHandbackRestores(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]func(t *testing.T, p *controlPlane){
		"AtOnce": func(t *testing.T, p *controlPlane) {
			p.config.ExternalSigner = true
			p.writeSteps(t, takeover, 3)
		},
		"Later": func(t *testing.T, p *controlPlane) { // the backup of the first takeover is what was before both
			p.writeSteps(t, takeover, 3)
			p.config.ExternalSigner, p.config.Rewrite = true, true
			p.writeSteps(t, takeover, 3)
		},
		"TwiceAndOnceWithoutTheFlag": func(t *testing.T, p *controlPlane) {
			p.config.ExternalSigner, p.config.Rewrite = true, true
			p.writeSteps(t, takeover, 3)
			p.writeSteps(t, takeover, 3)
			p.config.ExternalSigner = false
			before := p.all(t)
			p.writeSteps(t, takeover, 3)
			if diff := cmp.Diff(before, p.all(t)); diff != "" {
				t.Errorf("files have changed (-before +after):\n%s", diff)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newSigningControlPlane(t)
			before := p.all(t)
			in(t, p)
			p.config.ExternalSigner = false
			p.writeSteps(t, handback, 4)
			after := p.all(t)
			maps.DeleteFunc(after, func(file, _ string) bool { return strings.HasPrefix(file, "backup/") })
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("(-before +after):\n%s", diff)
			}
		})
	}
}

// TestSignerHandbackAfterAnotherEdit gives the flags back from what has kept them: the backup or our
// manifest.
func TestSignerHandbackAfterAnotherEdit(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]string{"NothingIsGone": "", "OurManifest": "manifests/sa-controller-manager.yaml",
		"TheBackup": "backup/kube-apiserver.yaml"} {
		t.Run(name, func(t *testing.T) {
			p := newSigningControlPlane(t)
			p.config.ExternalSigner = true
			p.writeSteps(t, takeover, 3)
			edited := bytes.Replace(staticpodtest.Read(t, p.config.manifest(component.APIServer)), []byte("    - --secure-port=6443\n"),
				[]byte("    - --secure-port=6443\n    - --v=4\n"), 1)
			p.write(t, apiServerFile, edited)
			p.config.ExternalSigner = false
			if gone != "" {
				p.remove(t, gone)
			}
			p.writeSteps(t, handback, 1)
			command := staticpodtest.Spec(t, staticpodtest.Read(t, p.config.manifest(component.APIServer))).Containers[0].Command
			for _, want := range []string{"--v=4", "--service-account-key-file=/etc/kubernetes/pki/sa.pub",
				"--service-account-signing-key-file=/etc/kubernetes/pki/sa.key"} {
				if !slices.Contains(command, want) {
					t.Errorf("%s is not in %q", want, command)
				}
			}
			ours := func(arg string) bool {
				return strings.HasPrefix(arg, "--service-account-signing-endpoint") || strings.HasPrefix(arg, "--disable-admission-plugins")
			}
			if slices.ContainsFunc(command, ours) {
				t.Errorf("ours is still in %q", command)
			}
		})
	}
}

func TestSignerRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		old, new string
		want     string
	}{
		"AnotherSigner": {
			"the operator uses another one", "    - --allow-privileged=true", "    - --service-account-signing-endpoint=/run/kms.sock",
			"in use already by another signer",
		},
		"KeyElsewhere": {
			"our Pod does not see it", "=/etc/kubernetes/pki/sa.pub", "=/etc/keys/sa.pub", "/etc/keys/sa.pub is in none of its volumeMounts",
		},
		"KeyAbove": {
			"likewise", "=/etc/kubernetes/pki/sa.pub", "=/etc/kubernetes/pki/../sa.pub", "/etc/kubernetes/sa.pub is in none of its volumeMounts",
		},
		"NoIssuer": {
			"nothing to sign", "    - --service-account-issuer=https://kubernetes.default.svc.cluster.local\n", "", "issues no tokens",
		},
		"OldImage":  {"the gate is off", "kube-apiserver:v1.37", "kube-apiserver:v1.33", "v1.34 is the oldest"},
		"NoVolumes": {"not kubeadm's", "    volumeMounts:\n", "    volumeDevices: []\n    volumeMounts: &x\n", "anchor"},
		"OurNameIsUsed": {
			"another volume has it", "    name: ca-certs\n  -", "    name: sa-controller-manager\n  -",
			`it has two volumes called "sa-controller-manager"`,
		},
		"OurDirectoryIsMounted": {
			"kube-apiserver refuses a Pod with both", "    volumeMounts:\n",
			"    volumeMounts:\n    - mountPath: /run/sa-controller-manager/\n      name: ca-certs\n",
			"the manifest of kube-apiserver: its volumeMounts sa-controller-manager and ca-certs are both at /run/sa-controller-manager",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := newSigningControlPlane(t)
			p.config.ExternalSigner = true
			text := string(staticpodtest.Read(t, p.config.manifest(component.APIServer)))
			if !strings.Contains(text, tc.old) {
				t.Fatalf("there is no %q to replace", tc.old)
			}
			p.write(t, apiServerFile, []byte(strings.Replace(text, tc.old, tc.new, 1)))
			before := p.all(t)
			err := Takeover(t.Context(), p.config)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: error %v, want one with %q", tc.reason, err, tc.want)
			}
			if diff := cmp.Diff(before, p.all(t)); diff != "" {
				t.Errorf("files have changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestSignerArgs(t *testing.T) {
	t.Parallel()
	m, err := staticpod.Parse(staticpodtest.Manifest([]string{
		component.APIServer, "--service-account-issuer=https://a", "--service-account-issuer=https://b",
		"--service-account-key-file=/etc/kubernetes/pki/1.pub", "--service-account-key-file=/etc/kubernetes/pki/2.pub",
		"--service-account-max-token-expiration=17520h",
	}), component.APIServer)
	testutil.Must(t, err)
	got, files, err := (&Config{}).signerFlags(m, nil)
	testutil.Must(t, err)
	testutil.Check(t, "files", []string{"/etc/kubernetes/pki/1.pub", "/etc/kubernetes/pki/2.pub"}, files)
	want := []string{
		"--external-signer-socket=/run/sa-controller-manager/signer.sock",
		"--service-account-issuer=https://a", "--service-account-issuer=https://b",
		"--service-account-key-file=/etc/kubernetes/pki/1.pub", "--service-account-key-file=/etc/kubernetes/pki/2.pub",
		"--external-signer-max-token-expiration=17520h0m0s",
	}
	testutil.Check(t, "result", want, got)
}

// TestOurProcessOutlivesItsUse: kube-apiserver would not start without it.
func TestOurProcessOutlivesItsUse(t *testing.T) {
	t.Parallel()
	p := newSigningControlPlane(t)
	p.config.ExternalSigner = true
	p.writeSteps(t, takeover, 3)
	p.config.ExternalSigner = false
	if err := p.config.unused(t.Context()); err == nil || !strings.Contains(err.Error(), "--steps=kube-apiserver") {
		t.Errorf("error %v, want one that says what comes first", err)
	}
	p.writeSteps(t, handback, 1)
	if err := p.config.unused(t.Context()); err != nil {
		t.Errorf("after kube-apiserver was handed back: %v", err)
	}
}

// TestTakeoverWithARemoteKey: our Pod sees the socket of the process that has the key, whether that runs
// already or not, and kube-apiserver does not.
func TestTakeoverWithARemoteKey(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ socket, want string }{
		"Mounted":       {socket: "hsm: /run/sa-kms-signer/hsm.sock"},
		"NoLine":        {socket: "other: /run/sa-kms-signer/other.sock", want: `kep740:hsm is what signs with key`},
		"NoFile":        {want: `want a line "hsm: PATH" with the path of its socket`},
		"Shared":        {socket: "hsm: /run/sa-controller-manager/hsm.sock", want: "kube-apiserver has /run/sa-controller-manager too"},
		"NotADirectory": {socket: "hsm: /run/hsm.sock", want: "hsm: /run/hsm.sock: our static pod cannot mount /run"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37")
			key := signing.RemoteKey("hsm", testkeys.Parse(testkeys.P384()).Public(), nil)
			file := ring.At(p.dir + "/keys/ring.json")
			testutil.Must(t, file.Init(key, nil, nil, time.Now()))
			flags := newPodFlags()
			flags.binary, flags.extraArgs = "/opt/b", []string{
				component.Assign(component.KeyFlag, ""), component.Assign(component.KeyRingFlag, file.Path()),
			}
			if tc.socket != "" {
				p.write(t, "keys/sockets.yaml", []byte("schemaVersion: 1\nsockets:\n  "+tc.socket+"\n"))
				flags.extraArgs = append(flags.extraArgs, component.Assign(remote.SocketsFlag, p.dir+"/keys/sockets.yaml"))
			}
			p.config.Render, p.config.Rewrite = flags.render, true
			o, err := p.config.observe()
			testutil.Must(t, err)
			wantError(t, "", p.config.render(o), tc.want)
			if tc.want != "" {
				return
			}
			spec := staticpodtest.Spec(t, o.rendered)
			volume := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool {
				return v.HostPath != nil && v.HostPath.Path == "/run/sa-kms-signer" && *v.HostPath.Type == corev1.HostPathDirectoryOrCreate
			})
			if volume < 0 || !slices.ContainsFunc(spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool {
				return m.Name == spec.Volumes[volume].Name && m.MountPath == "/run/sa-kms-signer"
			}) {
				t.Errorf("our Pod does not see the socket:\n%s", o.rendered)
			}
		})
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"
)

// renderSigner is our manifest as far as this package reads it.
func renderSigner(o manifests.StaticPodOptions) ([]byte, error) {
	text := "kind: Pod\nspec:\n  containers:\n  - image: " + o.Image + "\n    args:\n    - --service-account-private-key-file=/etc/kubernetes/pki/sa.key\n"
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
	before := string(read(t, p.config.manifest(apiServer)))
	p.writeSteps(t, takeover, 3)

	want := before
	for old, replacement := range map[string]string{
		"    - --service-account-key-file=/etc/kubernetes/pki/sa.pub\n":         "",
		"    - --service-account-signing-key-file=/etc/kubernetes/pki/sa.key\n": "",
		"    image: registry.k8s.io": "    - --disable-admission-plugins=ServiceAccount\n" +
			"    - --service-account-signing-endpoint=/run/sa-controller-manager/signer.sock\n    image: registry.k8s.io",
		"    volumeMounts:\n": "    volumeMounts:\n    - mountPath: /run/sa-controller-manager\n      name: sa-controller-manager\n      readOnly: true\n",
		"  volumes:\n": "  volumes:\n  - hostPath:\n      path: /run/sa-controller-manager\n      type: DirectoryOrCreate\n" +
			"    name: sa-controller-manager\n",
	} {
		if strings.Count(want, old) != 1 {
			t.Fatalf("%q is not there once", old)
		}
		want = strings.Replace(want, old, replacement, 1)
	}
	testutil.Check(t, "kube-apiserver's manifest", want, string(read(t, p.config.manifest(apiServer))))
}

func asJSON(t *testing.T, data []byte) []byte {
	t.Helper()
	converted, err := yaml.YAMLToJSON(data)
	testutil.Must(t, err)
	return converted
}

func decodedPatch(t *testing.T, patch []byte) jsonpatch.Patch {
	t.Helper()
	decoded, err := jsonpatch.DecodePatch(asJSON(t, patch))
	testutil.Must(t, err)
	return decoded
}

// patchedPod applies a patch as kubeadm does (cmd/kubeadm/app/util/patches).
func patchedPod(t *testing.T, data, patch []byte) corev1.PodSpec {
	t.Helper()
	result, err := decodedPatch(t, patch).Apply(asJSON(t, data))
	testutil.Must(t, err)
	var pod corev1.Pod
	testutil.Must(t, json.Unmarshal(result, &pod))
	return pod.Spec
}

func podOf(t *testing.T, data []byte) corev1.PodSpec {
	t.Helper()
	var pod corev1.Pod
	testutil.Must(t, yaml.UnmarshalStrict(data, &pod))
	return pod.Spec
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
	for name, gone := range map[string]string{"NothingIsGone": "", "OurManifest": "manifests/sa-controller-manager.yaml", "TheBackup": "backup/kube-apiserver.yaml"} {
		t.Run(name, func(t *testing.T) {
			p := newSigningControlPlane(t)
			p.config.ExternalSigner = true
			p.writeSteps(t, takeover, 3)
			edited := bytes.Replace(read(t, p.config.manifest(apiServer)), []byte("    - --secure-port=6443\n"), []byte("    - --secure-port=6443\n    - --v=4\n"), 1)
			p.write(t, apiServerFile, edited)
			p.config.ExternalSigner = false
			if gone != "" {
				p.remove(t, gone)
			}
			p.writeSteps(t, handback, 1)
			command := podOf(t, read(t, p.config.manifest(apiServer))).Containers[0].Command
			for _, want := range []string{"--v=4", "--service-account-key-file=/etc/kubernetes/pki/sa.pub", "--service-account-signing-key-file=/etc/kubernetes/pki/sa.key"} {
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
		"AnotherSigner": {"the operator uses another one", "    - --allow-privileged=true", "    - --service-account-signing-endpoint=/run/kms.sock", "in use already by another signer"},
		"KeyElsewhere":  {"our Pod does not see it", "=/etc/kubernetes/pki/sa.pub", "=/etc/keys/sa.pub", "/etc/keys/sa.pub is in none of its volumeMounts"},
		"KeyAbove":      {"likewise", "=/etc/kubernetes/pki/sa.pub", "=/etc/kubernetes/pki/../sa.pub", "/etc/kubernetes/sa.pub is in none of its volumeMounts"},
		"NoIssuer":      {"nothing to sign", "    - --service-account-issuer=https://kubernetes.default.svc.cluster.local\n", "", "issues no tokens"},
		"OldImage":      {"the gate is off", "kube-apiserver:v1.37", "kube-apiserver:v1.33", "v1.34 is the oldest"},
		"NoVolumes":     {"not kubeadm's", "    volumeMounts:\n", "    volumeDevices: []\n    volumeMounts: &x\n", "anchor"},
		"OurNameIsUsed": {"another volume has it", "    name: ca-certs\n  -", "    name: sa-controller-manager\n  -", "name of a volume or of a mount"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := newSigningControlPlane(t)
			p.config.ExternalSigner = true
			text := string(read(t, p.config.manifest(apiServer)))
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
	m := parse(t, apiServerComponent(), pod([]string{
		apiServer, "--service-account-issuer=https://a", "--service-account-issuer=https://b",
		"--service-account-key-file=/etc/kubernetes/pki/1.pub", "--service-account-key-file=/etc/kubernetes/pki/2.pub",
		"--service-account-max-token-expiration=17520h",
	}))
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
	if err := p.config.socketUnused(t.Context()); err == nil || !strings.Contains(err.Error(), "--steps=kube-apiserver") {
		t.Errorf("error %v, want one that says what comes first", err)
	}
	p.writeSteps(t, handback, 1)
	if err := p.config.socketUnused(t.Context()); err != nil {
		t.Errorf("after kube-apiserver was handed back: %v", err)
	}
}

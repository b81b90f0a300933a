// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apimachineryversion "k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/cert"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"
	"sa-controller-manager/signing/testkeys"
)

// TestTakeoverLosesNoKey is about a key that kube-apiserver verifies with and our process cannot.
func TestTakeoverLosesNoKey(t *testing.T) {
	t.Parallel()
	short := slices.Concat(testkeys.RSA2048(), testkeys.RSA1024())
	cases := map[string]struct {
		reason string
		signer bool
		verify []byte // nil if the file is not there
		want   string // "" if it is planned
	}{
		"Short":         {signer: true, verify: short, want: "/etc/kubernetes/pki/sa.pub: found an RSA key of 1024 bits; accepted is "},
		"Usable":        {signer: true, verify: slices.Concat(testkeys.RSA2048(), testkeys.P256())},
		"NotThere":      {reason: "our process says so", signer: true},
		"WithoutSigner": {reason: "kube-apiserver keeps its files", verify: short},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := newSigningControlPlane(t)
			for _, one := range components() {
				p.write(t, "etc/kubernetes/manifests/"+one.name+".yaml", read(t, p.config.manifest(one.name)))
			}
			p.config.ManifestsDir = p.dir + "/etc/kubernetes/manifests"
			p.config.ExternalSigner = tc.signer
			if tc.verify != nil {
				p.write(t, "etc/kubernetes/pki/sa.pub", tc.verify)
			}
			err := Takeover(t.Context(), p.config) // a dry run
			if tc.want == "" {
				if err != nil {
					t.Errorf("%s: %v", tc.reason, err)
				}
				return
			}
			if want := "the manifest of kube-apiserver: --service-account-key-file: " + p.dir + tc.want; err == nil || !strings.HasPrefix(err.Error(), want) || p.out.Len() > 0 {
				t.Errorf("%s: got %v after %q, want %s after nothing", tc.reason, err, &p.out, want)
			}
		})
	}
}

// TestVersionWithoutATag: an image that is named by its digest does not say its version, and the
// running kube-apiserver is asked before anything is written.
func TestVersionWithoutATag(t *testing.T) {
	t.Parallel()
	const digest = "registry.example.com:5000/kube-apiserver@sha256:abc"
	cases := map[string]struct {
		reason         string
		image, running string
		signer         bool
		steps          []string
		want           string
	}{
		"Tag":       {reason: "the manifest counts: it may not run yet", image: "registry.k8s.io/kube-apiserver:v1.37.2", running: "v1.20.0"},
		"Digest":    {image: digest, running: "v1.30.0"},
		"Old":       {image: digest, running: "v1.29.16", want: "kube-apiserver: v1.29.16 is too old: v1.30 is the oldest that is supported"},
		"LastStep":  {reason: "it changes kube-apiserver too", image: digest, running: "v1.29.16", steps: []string{StepAPIServer}, want: "v1.29.16 is too old"},
		"Signer":    {image: digest, running: "v1.34.0", signer: true},
		"OldSigner": {image: digest, running: "v1.33.9", signer: true, want: "v1.33.9 is too old: v1.34 is the oldest with an external signer"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := newSigningControlPlane(t)
			client := fake.NewClientset()
			client.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &apimachineryversion.Info{GitVersion: tc.running}
			p.config.Client, p.config.ExternalSigner, p.config.Steps = client, tc.signer, tc.steps
			manifest := read(t, p.config.manifest(apiServer))
			p.write(t, apiServerFile, bytes.Replace(manifest, []byte("registry.k8s.io/kube-apiserver:v1.37.2"), []byte(tc.image), 1))
			wantError(t, tc.reason, p.steps(t, takeover)[0].guards[0](t.Context()), tc.want)
		})
	}
}

// TestRewriteKeepsTheKeyRing: after a rotation the key file is not what signs.
func TestRewriteKeepsTheKeyRing(t *testing.T) {
	t.Parallel()
	const (
		file   = "--service-account-private-key-file=/etc/kubernetes/pki/sa.key"
		noFile = "--service-account-private-key-file="
		ring   = "--service-account-key-ring=/etc/kubernetes/pki/sa-keys/ring.json"
		noRing = "--service-account-key-ring="
	)
	after := []string{file, noFile, ring} // what docs/rotation.md leads to
	cases := map[string]struct {
		reason       string
		now, rewrite []string // arguments
		leave        bool     // without --rewrite and what implies it
		steps        []string
		refused      bool
	}{
		"Dropped":        {now: after, rewrite: []string{file, "--bind-address=0.0.0.0"}, refused: true},
		"ManagerAlone":   {now: after, rewrite: []string{file}, steps: []string{StepManager}, refused: true},
		"KeyFile":        {reason: "a command from before the rotation may name one", now: after, rewrite: []string{file, "--service-account-private-key-file=/etc/kubernetes/pki/ours.key"}, refused: true},
		"NoKey":          {reason: "one of two flags that keep it", now: after, rewrite: []string{file, noFile}, refused: true},
		"Kept":           {now: after, rewrite: after},
		"Moved":          {reason: "the flags name another one", now: after, rewrite: []string{file, noFile, "--service-account-key-ring=/etc/kubernetes/pki/keys"}},
		"GivenUp":        {reason: "the empty flag says so", now: after, rewrite: []string{file, noRing}},
		"GivenUpEarlier": {now: []string{file, ring, noRing}, rewrite: []string{file}},
		"NeverThere":     {now: []string{file}, rewrite: []string{file}},
		"NoManifest":     {rewrite: []string{file}},
		"LeftAsItIs":     {now: after, rewrite: []string{file}, leave: true},
		"OtherSteps":     {reason: "our manifest is not written", now: after, rewrite: []string{file}, steps: []string{StepControllerManager}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37")
			if tc.now != nil {
				p.write(t, "manifests/sa-controller-manager.yaml", ownWith(tc.now))
			}
			p.config.Render = func(manifests.StaticPodOptions) ([]byte, error) { return ownWith(tc.rewrite), nil }
			p.config.Rewrite, p.config.Steps = !tc.leave, tc.steps
			err := Takeover(t.Context(), p.config) // a dry run
			if !tc.refused {
				if err != nil {
					t.Errorf("%s: %v", tc.reason, err)
				}
				return
			}
			want := p.config.manifest(manager) + " has " + ring + ", and the rewrite would drop it; to keep it add --extra-arg=" + noFile + " --extra-arg=" + ring + ";"
			if err == nil || !strings.HasPrefix(err.Error(), want) || p.out.Len() > 0 {
				t.Errorf("%s: error %v after %q, want %s after nothing", tc.reason, err, &p.out, want)
			}
		})
	}
}

// ownWith is our manifest as far as this package reads it.
func ownWith(args []string) []byte {
	return []byte("kind: Pod\nspec:\n  containers:\n  - args:\n    - " + strings.Join(args, "\n    - ") + "\n")
}

// TestTakeoverWithAnExternalCA: what the operator has to do is said before anything is changed.
func TestTakeoverWithAnExternalCA(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	root := p.dir
	ca, _, err := cert.GenerateSelfSignedCertKey("kubernetes", nil, nil)
	testutil.Must(t, err)
	_, ca, _ = bytes.Cut(ca, []byte("-----END CERTIFICATE-----\n")) // the first one is a leaf
	p.write(t, "etc/kubernetes/pki/ca.crt", ca)
	p.write(t, "etc/kubernetes/controller-manager.conf", []byte(deadKubeconfig))
	c := &Config{ManifestsDir: root + "/etc/kubernetes/manifests", Out: io.Discard}
	err = c.ensureIdentity(&observed{})(t.Context())
	request := filepath.Join(root, "etc", "kubernetes", "sa-controller-manager", "client.csr")
	if err == nil || !cli.IsPermanent(err) || !strings.Contains(err.Error(), "have "+request+" signed") {
		t.Errorf("error %v, want a permanent one that names the request", err)
	}
	if _, err := os.Stat(request); err != nil {
		t.Error(err)
	}
}

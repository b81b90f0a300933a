// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	stdcmp "cmp"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	apimachineryversion "k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/cert"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod/staticpodtest"
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
			p.atRoot()
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
			if want := "the manifest of kube-apiserver: --service-account-key-file: " + p.dir + tc.want; err == nil ||
				!strings.HasPrefix(err.Error(), want) || p.out.Len() > 0 {
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
		"Tag":    {reason: "the manifest counts: it may not run yet", image: "registry.k8s.io/kube-apiserver:v1.37.2", running: "v1.20.0"},
		"Digest": {image: digest, running: "v1.30.0"},
		"Old":    {image: digest, running: "v1.29.16", want: "kube-apiserver: v1.29.16 is too old: v1.30 is the oldest that is supported"},
		"LastStep": {
			reason: "it changes kube-apiserver too", image: digest, running: "v1.29.16", steps: []string{StepAPIServer}, want: "v1.29.16 is too old",
		},
		"Signer":    {image: digest, running: "v1.34.0", signer: true},
		"OldSigner": {image: digest, running: "v1.33.9", signer: true, want: "v1.33.9 is too old: v1.34 is the oldest with an external signer"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := newSigningControlPlane(t)
			client := fake.NewClientset()
			client.Discovery().(*fakediscovery.FakeDiscovery).FakedServerVersion = &apimachineryversion.Info{GitVersion: tc.running}
			p.config.Client, p.config.ExternalSigner, p.config.Steps = client, tc.signer, tc.steps
			manifest := staticpodtest.Read(t, p.config.manifest(component.APIServer))
			p.write(t, apiServerFile, bytes.Replace(manifest, []byte("registry.k8s.io/kube-apiserver:v1.37.2"), []byte(tc.image), 1))
			p.config.DryRun = true
			if tc.steps != nil {
				p.write(t, "manifests/sa-controller-manager.yaml", staticpodtest.Own([]string{theKey, "--webhook-registration=url"}))
			}
			o, err := p.config.observe()
			testutil.Must(t, err)
			_, err = takeover(&p.config, o)
			wantError(t, tc.reason, err, tc.want)
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
		"Dropped":      {now: after, rewrite: []string{file, "--bind-address=0.0.0.0"}, refused: true},
		"ManagerAlone": {now: after, rewrite: []string{file}, steps: []string{StepManager}, refused: true},
		"KeyFile": {
			reason: "a command from before the rotation may name one", now: after,
			rewrite: []string{file, "--service-account-private-key-file=/etc/kubernetes/pki/ours.key"}, refused: true,
		},
		"NoKey": {reason: "one of two flags that keep it", now: after, rewrite: []string{file, noFile}, refused: true},
		"Kept":  {now: after, rewrite: after},
		"Moved": {
			reason: "the flags name another one", now: after, rewrite: []string{file, noFile, "--service-account-key-ring=/etc/kubernetes/pki/keys"},
		},
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
				p.write(t, "manifests/sa-controller-manager.yaml", staticpodtest.Own(tc.now))
			}
			p.config.Render = func(manifests.StaticPodOptions) ([]byte, error) { return staticpodtest.Own(tc.rewrite), nil }
			p.config.Rewrite, p.config.Steps = !tc.leave, tc.steps
			writeRing(t, p.dir+"/pki/sa-keys/ring.json")
			writeRing(t, p.dir+"/pki/keys")
			err := Takeover(t.Context(), p.config) // a dry run
			if !tc.refused {
				if err != nil {
					t.Errorf("%s: %v", tc.reason, err)
				}
				return
			}
			want := p.config.manifest(manager) + " has " + ring + ", and the rewrite would drop it; to keep it add --extra-arg=" + noFile +
				" --extra-arg=" + ring + ";"
			if err == nil || !strings.HasPrefix(err.Error(), want) || p.out.Len() > 0 {
				t.Errorf("%s: error %v after %q, want %s after nothing", tc.reason, err, &p.out, want)
			}
		})
	}
}

// TestTakeoverWithAnExternalCA: what the operator has to do is said before anything is changed.
func TestTakeoverWithAnExternalCA(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	p.atRoot()
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

// TestBinaryStays has a program in each place of a node.
func TestBinaryStays(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		file, link string
		mode       fs.FileMode // of the file
		directory  fs.FileMode // of its directory
		owner      int         // 0 is the user of the test
		data       []byte      // nil is a static program
		prints     string      // as its version, "" for that of ours
		want       string
	}{
		"UsrLocalBin": {file: "/usr/local/bin/b"},
		"Opt":         {file: "/opt/deep/er/b"},
		"GroupOfRoot": {file: "/opt/b", mode: 0o775},
		"SimilarName": {file: "/tmpfiles/b"},
		"Tmp": {
			file: "/tmp/b", want: "/tmp/b: it is below /tmp; it must survive a reboot and be writable by root only: install -m 755 ",
		},
		"VarTmp":         {file: "/var/tmp/x/b", want: "it is below /var/tmp"},
		"Run":            {file: "/run/b", want: "it is below /run"},
		"Shm":            {file: "/dev/shm/b", want: "it is below /dev"},
		"Home":           {file: "/home/op/b", want: "it is below /home"},
		"RootsHome":      {file: "/root/bin/b", want: "it is below /root"},
		"LinkToTmp":      {link: "/usr/local/bin/b", file: "/tmp/b", want: "it is below /tmp"},
		"WorldFile":      {file: "/opt/b", mode: 0o757, want: "/opt/b may be written by others"},
		"WorldDirectory": {file: "/opt/x/b", directory: 0o777, want: "/opt/x may be written by others"},
		"AnothersFile":   {file: "/opt/b", owner: 1234, want: "/opt/b belongs to user 1234 and not to root"},
		"NotExecutable":  {file: "/opt/b", mode: 0o644, want: "--binary /opt/b: it is not executable: chmod 755 "},
		"Script":         {file: "/opt/b", data: []byte("#!/bin/sh\nexec b\n"), want: "--binary /opt/b: it is no program for Linux: "},
		"NotStatic": {
			file: "/opt/b", data: staticpodtest.Program(true), want: "it is not static, and our Pod has no libc; build it with CGO_ENABLED=0",
		},
		"AnotherProgram": {file: "/opt/b", prints: "true (GNU coreutils)\n", want: "prints no version of sa-controller-manager"},
		"DoesNotRun":     {file: "/opt/b", prints: "none", want: "ROOT/opt/b version\": exec format error"},
		"NotThere":       {link: "/opt/b", file: "/opt/c", want: "--binary: "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.owner != 0 && os.Geteuid() != 0 {
				t.Skip("only root can give files away")
			}
			p := newControlPlane(t, "v1.37")
			p.atRoot()
			place := func(path string) string { return filepath.Join(p.dir, path) }
			if tc.data == nil {
				tc.data = staticpodtest.Program(false)
			}
			p.write(t, tc.file, tc.data)
			p.config.Binary = tc.file
			if tc.prints == "none" {
				p.config.Version = func(context.Context, string) (string, error) { return "", syscall.ENOEXEC }
			} else if tc.prints != "" {
				p.config.Version = func(context.Context, string) (string, error) { return tc.prints, nil }
			}
			change := func(err error) {
				testutil.Must(t, err)
			}
			change(os.Chmod(place(tc.file), stdcmp.Or(tc.mode, 0o755)))
			if tc.directory != 0 {
				change(os.Chmod(filepath.Dir(place(tc.file)), tc.directory))
			}
			if tc.owner != 0 {
				change(os.Chown(place(tc.file), tc.owner, -1))
			}
			if tc.link != "" {
				p.config.Binary = tc.link
				change(os.MkdirAll(filepath.Dir(place(tc.link)), 0o755))
				change(os.Symlink(place(tc.file), place(tc.link)))
			}
			if name == "NotThere" {
				change(os.Remove(place(tc.file)))
			}
			wantError(t, name, p.config.checkBinary(t.Context()), strings.ReplaceAll(tc.want, "ROOT", p.dir))
		})
	}
}

// TestAlone: to the kubelet a copy is a manifest like any other.
func TestAlone(t *testing.T) {
	t.Parallel()
	kcm := string(staticpodtest.Read(t, "testdata/manifests/v1.37/kube-controller-manager.yaml"))
	own := "kind: Pod\nmetadata: {name: mine}\nspec:\n  containers:\n  - command: [/opt/sa-controller-manager]\n"
	for name, tc := range map[string]struct{ file, data, want string }{
		"Backup": {
			"kube-controller-manager.yaml.bak", kcm, "kube-controller-manager.yaml.bak is a manifest of kube-controller-manager too",
		},
		"Ours":         {"mine.yaml", own, "mine.yaml is a manifest of sa-controller-manager too"},
		"ByName":       {"x.json", `{"kind": "Pod", "metadata": {"name": "kube-apiserver"}}`, "x.json is a manifest of kube-apiserver too"},
		"UnderOurName": {"sa-controller-manager.yaml", kcm, "sa-controller-manager.yaml is a manifest of kube-controller-manager too"},
		"BrokenLink":   {"old.yaml", "", "manifests/old.yaml leads to a file that does not exist; remove the link"},
		"Hidden":       {".kube-controller-manager.yaml.swp", kcm, ""},
		"Below":        {"old/kube-controller-manager.yaml", kcm, ""},
		"Another":      {"etcd.yaml", "kind: Pod\nmetadata: {name: etcd}\nspec: {containers: [{command: [etcd]}]}\n", ""},
		"NoManifest":   {"README", "# a: [", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37")
			if tc.data == "" {
				testutil.Must(t, os.Symlink("/none", p.dir+"/manifests/"+tc.file))
			} else {
				p.write(t, "manifests/"+tc.file, []byte(tc.data))
			}
			entries, err := os.ReadDir(p.dir + "/manifests")
			testutil.Must(t, err)
			err = Takeover(t.Context(), p.config) // a dry run
			wantError(t, name, err, tc.want)
			after, _ := os.ReadDir(p.dir + "/manifests")
			if err != nil && (p.out.Len() > 0 || !strings.Contains(err.Error(), p.dir) || len(entries) != len(after)) {
				t.Errorf("%v after %q", err, &p.out)
			}
		})
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
)

// TestBinaryStays has a program in each place of a node.
func TestBinaryStays(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		file, link string
		mode       fs.FileMode // of the file
		directory  fs.FileMode // of its directory
		owner      int         // 0 is the user of the test
		want       string
	}{
		"UsrLocalBin":    {file: "/usr/local/bin/b"},
		"Opt":            {file: "/opt/deep/er/b"},
		"GroupOfRoot":    {file: "/opt/b", mode: 0o775},
		"SimilarName":    {file: "/tmpfiles/b"},
		"Tmp":            {file: "/tmp/b", want: "/tmp/b: it is below /tmp; it must survive a reboot and be writable by root only: install -m 755 "},
		"VarTmp":         {file: "/var/tmp/x/b", want: "it is below /var/tmp"},
		"Run":            {file: "/run/b", want: "it is below /run"},
		"Shm":            {file: "/dev/shm/b", want: "it is below /dev"},
		"Home":           {file: "/home/op/b", want: "it is below /home"},
		"RootsHome":      {file: "/root/bin/b", want: "it is below /root"},
		"LinkToTmp":      {link: "/usr/local/bin/b", file: "/tmp/b", want: "it is below /tmp"},
		"WorldFile":      {file: "/opt/b", mode: 0o757, want: "/opt/b may be written by others"},
		"WorldDirectory": {file: "/opt/x/b", directory: 0o777, want: "/opt/x may be written by others"},
		"AnothersFile":   {file: "/opt/b", owner: 1234, want: "/opt/b belongs to user 1234 and not to root"},
		"NotThere":       {link: "/opt/b", file: "/opt/c", want: "--binary: "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.owner != 0 && os.Geteuid() != 0 {
				t.Skip("only root can give files away")
			}
			p := newControlPlane(t, "v1.37")
			p.config.ManifestsDir = p.dir + "/etc/kubernetes/manifests"
			place := func(path string) string { return filepath.Join(p.dir, path) }
			p.write(t, tc.file, nil)
			p.config.Binary = tc.file
			change := func(err error) {
				testutil.Must(t, err)
			}
			if tc.mode != 0 {
				change(os.Chmod(place(tc.file), tc.mode))
			}
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
			wantError(t, name, p.config.checkBinary(), tc.want)
		})
	}
}

// TestAlone: to the kubelet a copy is a manifest like any other.
func TestAlone(t *testing.T) {
	t.Parallel()
	kcm := string(read(t, "testdata/manifests/v1.37/kube-controller-manager.yaml"))
	own := "kind: Pod\nmetadata: {name: mine}\nspec:\n  containers:\n  - command: [/opt/sa-controller-manager]\n"
	for name, tc := range map[string]struct{ file, data, want string }{
		"Backup":       {"kube-controller-manager.yaml.bak", kcm, "kube-controller-manager.yaml.bak is a manifest of kube-controller-manager too"},
		"Ours":         {"mine.yaml", own, "mine.yaml is a manifest of sa-controller-manager too"},
		"ByName":       {"x.json", `{"kind": "Pod", "metadata": {"name": "kube-apiserver"}}`, "x.json is a manifest of kube-apiserver too"},
		"UnderOurName": {"sa-controller-manager.yaml", kcm, "sa-controller-manager.yaml is a manifest of kube-controller-manager too"},
		"Hidden":       {".kube-controller-manager.yaml.swp", kcm, ""},
		"Below":        {"old/kube-controller-manager.yaml", kcm, ""},
		"Another":      {"etcd.yaml", "kind: Pod\nmetadata: {name: etcd}\nspec: {containers: [{command: [etcd]}]}\n", ""},
		"NoManifest":   {"README", "# a: [", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := newControlPlane(t, "v1.37")
			p.write(t, "manifests/"+tc.file, []byte(tc.data))
			before := p.all(t)
			err := Takeover(t.Context(), p.config) // a dry run
			wantError(t, name, err, tc.want)
			if err != nil && (p.out.Len() > 0 || !strings.Contains(err.Error(), p.dir) || len(before) != len(p.all(t))) {
				t.Errorf("%v after %q", err, &p.out)
			}
		})
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package takeovertest has the files of a node of kubeadm without a node: nothing runs.
package takeovertest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"

	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/internal/testutil/staticpodtest"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/signing/testkeys"
)

// Files of a Node.
const (
	OwnFile       = "manifests/sa-controller-manager.yaml"
	APIServerFile = "manifests/kube-apiserver.yaml"
	KCMFile       = "manifests/kube-controller-manager.yaml"
	RecordFile    = "sa-controller-manager-backup/record.json"
)

// DeadKubeconfig leads to an address without a listener.
const DeadKubeconfig = `apiVersion: v1
kind: Config
clusters:
- name: demo
  cluster: {server: "https://127.0.0.1:1"}
contexts:
- name: demo
  context: {cluster: demo}
current-context: demo
`

// Node has /etc/kubernetes in Dir.
type Node struct{ Dir string }

// New returns a node with what kubeadm writes, with further flags of kube-apiserver.
func New(t *testing.T, sample string, flags ...string) *Node {
	t.Helper()
	n := &Node{t.TempDir() + "/etc/kubernetes"}
	n.Write(t, "../../usr/local/bin/sa-controller-manager", nil)
	WriteFiles(t, n.Dir+"/pki")
	for _, name := range []string{component.ControllerManager, component.APIServer} {
		n.Write(t, "manifests/"+name+".yaml", Stock(t, sample, name))
	}
	for _, flag := range flags {
		n.Change(t, component.APIServer, "    image:", "    - "+flag+"\n    image:")
	}
	return n
}

// Stock is one of kubeadm's manifests.
func Stock(t *testing.T, sample, name string) []byte {
	t.Helper()
	root := "."
	for _, err := os.Stat(root + "/go.mod"); err != nil; _, err = os.Stat(root + "/go.mod") {
		root += "/.."
	}
	return staticpodtest.Read(t, root+"/manifests/component/testdata/manifests/"+sample+"/"+name+".yaml")
}

// WriteFiles writes what the samples and the tests name.
func WriteFiles(t *testing.T, dir string) {
	t.Helper()
	testutil.Must(t, os.MkdirAll(dir, 0o700))
	for name, data := range map[string][]byte{"sa.key": testkeys.RSA2048(), "ours.key": testkeys.P256(), "ca.crt": RootCA()} {
		testutil.Must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
}

// WriteRing makes a key ring.
func WriteRing(t *testing.T, file string) {
	t.Helper()
	testutil.Must(t, ring.At(file).Init(testkeys.Parse(testkeys.P256()), nil, nil, time.Now()))
}

// RootCA is the certificate of a cluster.
var RootCA = sync.OnceValue(func() []byte {
	pem, _, err := cert.GenerateSelfSignedCertKey("kubernetes", nil, nil)
	if err != nil {
		panic(err)
	}
	return pem
})

// Write writes a file below Dir.
func (n *Node) Write(t *testing.T, name string, data []byte) {
	t.Helper()
	path := filepath.Join(n.Dir, name)
	testutil.Must(t, os.MkdirAll(filepath.Dir(path), 0o700))
	testutil.Must(t, os.WriteFile(path, data, 0o600))
}

// Located replaces ROOT by the directory that is the root of the node.
func (n *Node) Located(text string) string {
	return strings.ReplaceAll(text, "ROOT", strings.TrimSuffix(n.Dir, "/etc/kubernetes"))
}

// Remove removes files.
func (n *Node) Remove(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		testutil.Must(t, os.Remove(filepath.Join(n.Dir, name)))
	}
}

// Change edits the manifest of a component.
func (n *Node) Change(t *testing.T, name, old, replacement string) {
	t.Helper()
	file := "manifests/" + name + ".yaml"
	n.Write(t, file, Replaced(t, staticpodtest.Read(t, filepath.Join(n.Dir, file)), old, replacement))
}

// Replaced wants the old text to be there once.
func Replaced(t *testing.T, text []byte, old, replacement string) []byte {
	t.Helper()
	n := strings.Count(string(text), old)
	testutil.Require(t, n == 1, "%q is there %d times, want once:\n%s", old, n, text)
	return bytes.Replace(text, []byte(old), []byte(replacement), 1)
}

// Files is every file of the node.
func (n *Node) Files(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(n.Dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files[strings.TrimPrefix(path, n.Dir+"/")] = string(staticpodtest.Read(t, path))
		}
		return err
	})
	testutil.Must(t, err)
	return files
}

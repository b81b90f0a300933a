// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package byhand

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// TestInstall follows docs/install.md beside a kube-apiserver, and then runs the single commands of other pages there.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	cluster := testcluster.New(t, devcluster.Options{
		APIServerFlags: map[string][]string{"disable-admission-plugins": {}},
		// Of its own CA the control plane keeps no key.
		BeforeAPIServer: func(c *devcluster.Cluster) error {
			return prepare(dir, `openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.crt
cat ca.crt >>`+c.ClientCAFile()+` && cat `+c.CAFile()+` >>ca.crt && cp `+c.SigningKeyFile()+` sa.key`)
		},
	})
	s := newShell(t, cluster)
	s.dir = dir
	root, err := filepath.Abs("../..")
	testutil.Must(t, err)
	testutil.Must(t, prepare(dir, "mkdir bin; ln -s "+testcluster.Binary(t).Path+" bin/sa-controller-manager; "+
		"ln -s bin/sa-controller-manager new; ln -s "+filepath.Join(root, "manifests")+" manifests"))
	here := strings.NewReplacer(
		"--kubeconfig=/etc/kubernetes/admin.conf", `--kubeconfig="$KUBECONFIG"`,
		"/etc/kubernetes/sa-controller-manager/kubeconfig", "sacm.conf",
		"/etc/kubernetes/sa-controller-manager/client.pem", "sacm.crt",
		"/etc/kubernetes/sa-controller-manager/static", dir,
		"/etc/kubernetes/pki/sa.key", "sa.key",
		"--bind-address=127.0.0.1\n", "--bind-address=127.0.0.1 >manager.log 2>&1 &\n")
	var blocks []string
	for _, command := range []struct{ page, begins string }{
		{"install.md", "openssl req "},
		{"install.md", "bin/sa-controller-manager --kubeconfig"},
		{"", "curl -sSkf --retry 60 --retry-all-errors --retry-delay 1 https://127.0.0.1:10261/readyz\n" +
			"kubectl wait --for=create --timeout=60s -n default serviceaccount/default configmap/kube-root-ca.crt"},
		{"install.md", "curl -sk "},
		{"operations.md", "curl -sk "},
		{"operations.md", "kubectl get secrets -A "},
		{"operations.md", "kubectl get serviceaccounts -A "},
		{"cli.md", "sa-controller-manager doctor "},
		{"federation.md", "kubectl create clusterrolebinding"},
		{"troubleshooting.md", "openssl genrsa "},
		{"troubleshooting.md", "kubectl patch validatingadmissionpolicybindings"},
		{"troubleshooting.md", "openssl x509 -noout"},
		{"troubleshooting.md", "kubectl get pods --all-namespaces --no-headers"},
		{"upgrade.md", "conf="},
		{"upgrade.md", "curl -sk "},
		{"install.md", "bin/sa-controller-manager webhook unregister"},
	} {
		block := command.begins
		if command.page != "" {
			block = blockOf(t, filepath.Join(root, "docs", command.page), command.begins)
		}
		blocks = append(blocks, here.Replace(block))
	}
	for i, got := range s.run(t, blocks...) {
		if got.code != "0" {
			t.Fatalf("exit code %q of\n%s\nit printed:\n%s\nthe manager's log:\n%s", got.code, blocks[i], got.printed, read(t, dir+"/manager.log"))
		}
		if strings.Contains(blocks[i], "readyz?verbose") && !strings.Contains(got.printed, "readyz check passed") {
			t.Errorf("not ready:\n%s", got.printed)
		}
	}
}

// prepare runs commands that are on no page.
func prepare(dir, script string) error {
	command := exec.Command("bash", "-euc", script)
	command.Dir = dir
	if printed, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, printed)
	}
	return nil
}

// blockOf returns the block of commands of a page that begins with a text.
func blockOf(t *testing.T, page, begins string) string {
	t.Helper()
	content, err := os.ReadFile(page)
	testutil.Must(t, err)
	for _, block := range regexp.MustCompile("(?s)```sh test\\n(.*?\\n) *```\\n").FindAllStringSubmatch(string(content), -1) {
		if strings.HasPrefix(strings.TrimSpace(block[1]), begins) {
			return block[1]
		}
	}
	t.Fatalf("%s has no block for a test that begins with %q", page, begins)
	return ""
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package byhand

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
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
	root := testutil.Get(filepath.Abs("../.."))(t)
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
			t.Fatalf("exit code %q of\n%s\nit printed:\n%s\nthe manager's log:\n%s", got.code, blocks[i], got.printed,
				read(t, dir+"/manager.log"))
		}
		testutil.Expect(t, !strings.Contains(blocks[i], "readyz?verbose") || strings.Contains(got.printed, "readyz check passed"),
			"not ready:\n%s", got.printed)
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
	content := testutil.Get(os.ReadFile(page))(t)
	for _, block := range regexp.MustCompile("(?s)```sh test\\n(.*?\\n) *```\\n").FindAllStringSubmatch(string(content), -1) {
		if strings.HasPrefix(strings.TrimSpace(block[1]), begins) {
			return block[1]
		}
	}
	t.Fatalf("%s has no block for a test that begins with %q", page, begins)
	return ""
}

// rbacUser is the one that manifests/permissions is written for.
const rbacUser = "system:sa-controller-manager"

// unusedTokens are immutable, so that no controller fills them while they are marked.
const unusedTokens = `---
{apiVersion: v1, kind: ServiceAccount, metadata: {namespace: unused, name: app}, secrets: [{name: a}, {name: b}, {name: c}]}
---
{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, immutable: true,
  metadata: {namespace: unused, name: a, annotations: {kubernetes.io/service-account.name: app}}}
---
{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, immutable: true,
  metadata: {namespace: unused, name: b, annotations: {kubernetes.io/service-account.name: app}}}
---
{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, immutable: true,
  metadata: {namespace: unused, name: c, annotations: {kubernetes.io/service-account.name: app},
  labels: {kubernetes.io/legacy-token-invalid-since: "2020-01-01"}}}
`

// TestRBAC has the manager do all that needs a permission, with no others than those
// of manifests/permissions and, for what no manifest turns on, of token-secrets and options below it.
func TestRBAC(t *testing.T) {
	cluster := testcluster.New(t, devcluster.Options{APIServerFlags: map[string][]string{"disable-admission-plugins": {"ServiceAccount"}}})
	kubeconfig, _, err := cluster.Identity(rbacUser)
	testutil.Must(t, err)
	page := testutil.Get(filepath.Abs("../../manifests/permissions"))(t)
	shell := newShell(t, cluster)
	shell.must(t, "kubectl apply -k "+page, "kubectl apply -k "+page+"/options", "kubectl apply -k "+page+"/token-secrets")
	// One unused legacy token to mark and one to delete.
	shell.must(t, "kubectl -n kube-system get configmap kube-apiserver-legacy-service-account-token-tracking",
		`kubectl -n kube-system patch configmap kube-apiserver-legacy-service-account-token-tracking --type=merge `+
			`-p '{"data":{"since":"2020-01-01"}}'`,
		"kubectl create namespace unused", "kubectl apply -f - <<'END'\n"+unusedTokens+"END")
	rootCA := testutil.WriteFile(t, "ca.crt", testcluster.ReadFile(t, cluster.CAFile()))
	flags := append(webhookFlags(t), "--legacy-service-account-token-clean-up-period=1ms", "--root-ca-file="+rootCA,
		"--kubeconfig="+kubeconfig, "--leader-elect=true", "--token-secrets=auto", "--pod-token=secret")
	manager := startManager(t, cluster, flags)
	shell.must(t, "sa-controller-manager preflight "+strings.Join(flags,
		" ")+" --service-account-private-key-file="+cluster.SigningKeyFile())

	awaitLogs(t, manager, `state="registered"`)

	awaitLogs(t, manager, `"Marked legacy token invalid"`, `reason="LegacyTokenDeleted"`)
	shell.must(t, "kubectl create namespace trial", "kubectl -n trial run nginx --image=nginx")
	// Looks up an account that is in no cache.
	shell.must(t, "kubectl -n trial run nginx2 --image=nginx --overrides='{\"spec\":{\"serviceAccountName\":\"nobody\"}}' 2>&1 | "+
		"grep 'serviceaccount \"nobody\" not found'")
	// Damage to what it keeps.
	shell.must(t, "kubectl delete validatingwebhookconfiguration 00-sa-controller-manager",
		"kubectl -n kube-system patch secret sa-controller-manager-webhook-ca --type=merge -p '{\"data\":null}'")
	awaitLogs(t, manager, `secret="kube-system/sa-controller-manager-webhook-ca" reason="schema-version is missing`)
	shell.must(t, "kubectl -n trial patch configmap kube-root-ca.crt --type=merge -p '{\"data\":null}'")
	awaitLogs(t, manager, `configMap="trial/kube-root-ca.crt" again=true`, `"Wrote the state of the root CA"`)
	testutil.Must(t, os.WriteFile(rootCA, testcluster.ReadFile(t, filepath.Join(cluster.Dir(), "client-ca.crt")), 0o600))
	awaitLogs(t, manager, "inOverlap=1")
	shell.must(t, "sa-controller-manager webhook unregister --kubeconfig='"+kubeconfig+"'")
	awaitLogs(t, manager, `state="off"`)
	shell.must(t, "sa-controller-manager webhook register --kubeconfig='"+kubeconfig+"'")

	for line := range strings.Lines(manager.Logs()) {
		testutil.Expect(t, !strings.Contains(line, "forbidden") || !strings.Contains(line, rbacUser), "a permission is missing: %s", line)
	}
}

// must runs commands, all of which have to succeed.
func (s *shell) must(t *testing.T, commands ...string) {
	t.Helper()
	for i, got := range s.run(t, commands...) {
		if got.code != "0" {
			t.Fatalf("%s\nexit code %s: %s", commands[i], got.code, got.printed)
		}
	}
}

func awaitLogs(t *testing.T, manager *devcluster.Manager, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err := manager.AwaitLog(testcluster.Context(t), text); err != nil {
			t.Fatalf("%v\n%s", err, manager.LogTail(40))
		}
	}
}

// publish makes a release of the commit as its maintainers do. Keys of its own sign it.
const publish = `set -eux
git clone --quiet "$root" "$repository"
git -C "$repository" -c tag.gpgSign=false tag v0.0.1
make -C "$repository" release
ssh-keygen -q -t ed25519 -N "" -C "" -f "$repository.key"
openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$repository.pem"
openssl pkey -in "$repository.pem" -pubout -out cosign.pub
make -C "$repository" sign KEY="$repository.key" COSIGN_KEY="$repository.pem"
cp "$repository"/bin/release/* .
echo "release@sa-controller-manager namespaces=\"file\" $(cat "$repository.key.pub")" >allowed_signers
set +eux`

// TestVerify follows the page with a release of this commit, without what is not committed. The page
// builds it again, here with other settings and in another directory. Both builds share Go's cache:
// that the same compiler writes the same bytes is Go's promise.
func TestVerify(t *testing.T) {
	await.Long(t)
	t.Parallel()
	root := testutil.Get(filepath.Abs("../.."))(t)
	reader := shell{dir: t.TempDir(), timeout: 35 * time.Minute, environment: append(os.Environ(),
		"root="+root, "repository="+filepath.Join(t.TempDir(), "repository"), "MAKEFLAGS=", "MAKELEVEL=")}
	var page []string
	for _, step := range readPage(t, "../../docs/verify.md") {
		page = append(page, step.commands)
	}
	blocks := append([]string{publish, `umask 077; export TZ=Asia/Tokyo LC_ALL=C.UTF-8 GOFLAGS=-v GOAMD64=v3`}, page...)
	for i, got := range reader.run(t, blocks...) {
		if got.code != "0" {
			t.Fatalf("exit code %q of\n%s\nit printed:\n%s", got.code, blocks[i], got.printed)
		}
	}
	testutil.Must(t, os.RemoveAll(filepath.Join(reader.dir, "source")))
	for name, test := range map[string]struct{ change, refusedBy string }{
		"signed by another key": {`rm SHA256SUMS.sig; ssh-keygen -q -t ed25519 -N "" -f other; ssh-keygen -Y sign -n file -f other ` +
			`SHA256SUMS`,
			"ssh-keygen"},
		"another manifest": {`echo >>manifests.tar.gz`, "sha256sum"},
		"another chart":    {`echo >>"$(echo sa-controller-manager-*.tgz)"`, "signed()"},
		"another image":    {`echo >>"$(echo sa-controller-manager_*_image.tar)"`, "signed()"},
		"another commit":   {`sed -i 's/"gitCommit": "./&0/' provenance.json`, "git clone"},
	} {
		changed := reader
		changed.dir = t.TempDir()
		testutil.Must(t, os.CopyFS(changed.dir, os.DirFS(reader.dir)))
		refusal := slices.IndexFunc(page, func(block string) bool { return strings.HasPrefix(block, test.refusedBy) })
		results := changed.run(t, append([]string{test.change}, page[:refusal+1]...)...)
		if got := results[refusal+1]; got.code != "1" && got.code != "255" {
			t.Errorf("%s: exit code %q of\n%s\nit printed:\n%s", name, got.code, page[refusal], got.printed)
		}
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"
	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/traffic"
)

func manifestOf(name string) string { return "/etc/kubernetes/manifests/" + name + ".yaml" }

// manifests are those of the two components that a takeover changes.
func (n *node) manifests(t *testing.T) map[string]string {
	t.Helper()
	manifests := map[string]string{}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager"} {
		manifests[name] = string(n.read(t, manifestOf(name)))
	}
	return manifests
}

// weRun: a new namespace has its account, a Pod there its token, and it is us who sign.
func weRun(t *testing.T, n *node) {
	t.Helper()
	by := newcomer(t, n)
	testutil.Expect(t, by == "sa-controller-manager", "a token Secret was filled by %q", by)
}

// weAreGone: the same, by the two others; and nothing of ours is left that acts.
func weAreGone(t *testing.T, n *node) {
	t.Helper()
	by := newcomer(t, n)
	testutil.Expect(t, by == "kube-controller-manager", "a token Secret was filled by %q", by)
	api := n.client.AdmissionregistrationV1()
	if _, err := api.MutatingWebhookConfigurations().Get(t.Context(), "00-sa-controller-manager",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the mutating configuration: %v", err)
	}
	if _, err := api.ValidatingWebhookConfigurations().Get(t.Context(), "00-sa-controller-manager",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the validating configuration: %v", err)
	}
	for _, policy := range []podpolicy.Policy{podpolicy.Refusal, podpolicy.Completion} {
		exists, _, err := policy.Problem(t.Context(), n.client)
		testutil.Expect(t, !exists && err == nil, "a policy for Pods is there, %v", err)
	}
	for _, name := range []string{manifestOf("sa-controller-manager"),
		"/etc/kubernetes/sa-controller-manager-patches/kube-apiserver-sa-controller-manager+json.yaml"} {
		testutil.Expect(t, !n.exists(name), "%s is still there", name)
	}
}

// newcomer makes a namespace, a Pod and a token Secret in it, and says who has filled
// the Secret.
func newcomer(t *testing.T, n *node) string {
	t.Helper()
	namespace := testutil.Get(n.client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{}))(t)
	awaitDefaultAccount(t, n, namespace.Name)
	pod, err := n.client.CoreV1().Pods(namespace.Name).Create(t.Context(), traffic.Pod(), metav1.CreateOptions{})
	if err == nil {
		err = traffic.Complete(pod)
	}
	testutil.Expect(t, err == nil, "a Pod in %s: %v", namespace.Name, err)
	secrets := n.client.CoreV1().Secrets(namespace.Name)
	secret, err := secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "token", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{FieldManager: "test"})
	testutil.Must(t, err)
	poll(t, "a token Secret is filled", func(ctx context.Context) error {
		if secret, err = secrets.Get(ctx, "token", metav1.GetOptions{}); err == nil && len(secret.Data["token"]) == 0 {
			err = errors.New("it is empty")
		}
		return err
	})
	var by []string
	for _, entry := range secret.ManagedFields {
		if entry.Manager != "test" {
			by = append(by, entry.Manager)
		}
	}
	return strings.Join(by, ", ")
}

func awaitDefaultAccount(t *testing.T, n *node, namespace string) {
	t.Helper()
	poll(t, "the default account of "+namespace, func(ctx context.Context) error {
		_, err := n.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// TestHandbackByHand: the way back as the page says, with an editor and kubectl, on a node whose process is dead for
// good: its binary ends at once, its kubeconfig is damaged, and the key of the CA is not on the node. Pods of
// other accounts than default are refused.
func TestHandbackByHand(t *testing.T) {
	await.Long(t)
	t.Parallel() // a kube-apiserver takes half a minute to stop, in which nothing is to be done
	n := newNode(t, func(n *node) {
		// As kubeadm has it with an external CA: kube-controller-manager signs no certificates.
		name := manifestOf("kube-controller-manager")
		n.write(t, name, regexp.MustCompile(`(?m)^    - --cluster-signing-.*\n`).ReplaceAll(n.read(t, name), nil))
	})
	awaitDefaultAccount(t, n, "default")
	before := n.manifests(t)
	n.must(t, append([]string{"takeover"}, n.podFlags()...)...)
	weRun(t, n)
	n.kubelet.breakManager()
	n.write(t, "/etc/kubernetes/sa-controller-manager/kubeconfig", []byte("kind: ["))
	testutil.Must(t, os.Remove(n.path("/etc/kubernetes/pki/ca.key")))
	poll(t, "Pods are refused", func(ctx context.Context) error {
		pod := traffic.Pod()
		pod.Spec.ServiceAccountName = "another" // kube-apiserver completes those of the account default itself
		_, err := n.client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			return errors.Join(errors.New("the webhook is not missed"), err)
		}
		return nil
	})

	script := strings.Join(pageCommands(t, "../../docs/takeover.md", "### By hand"), "\n")
	printed, err := n.shell(t, script).CombinedOutput()
	testutil.Require(t, err == nil, "%v of\n%s\nit printed:\n%s\n%s", err, script, printed, n.kubelet)
	testutil.Check(t, "manifests", before, n.manifests(t))
	weAreGone(t, n)
}

// The page is run as it stands, on the directory that is the node. After it the API has
// nothing that bears our name, and the node no file.
func TestUninstall(t *testing.T) {
	await.Long(t)
	t.Parallel() // a kube-apiserver takes half a minute to stop, in which nothing is to be done
	n := newNode(t)
	awaitDefaultAccount(t, n, "default")
	n.must(t, append([]string{"takeover"}, n.podFlags()...)...)
	weRun(t, n)
	left := n.ours(t)
	testutil.Require(t, len(left) >= 10, "only %q is ours while we run, so looking for it proves nothing", left)

	blocks := pageCommands(t, "../../docs/uninstall.md", "# Uninstall")
	for _, block := range blocks {
		printed, err := n.shell(t, block).CombinedOutput()
		testutil.Require(t, err == nil, "%v of\n%s\nit printed:\n%s", err, block, printed)
		testutil.Expect(t, block != blocks[len(blocks)-1] || len(printed) == 0,
			"the page says that this prints nothing:\n%s\nit printed:\n%s",
			block, printed)
	}
	if left := n.ours(t); len(left) > 0 {
		t.Errorf("left in the cluster: %q", left)
	}
	var files []string
	err := filepath.WalkDir(n.path("/etc/kubernetes"), func(path string, _ os.DirEntry, err error) error {
		if strings.Contains(strings.TrimPrefix(path, n.root), "sa-controller-manager") {
			files = append(files, path)
		}
		return err
	})
	testutil.Expect(t, err == nil && len(files) == 0, "left on the node: %q, %v", files, err)
	weAreGone(t, n)
}

// pageCommands are the blocks below a heading of a page, as far as the next part, that are to be typed.
func pageCommands(t *testing.T, path, heading string) []string {
	t.Helper()
	content := testutil.Get(os.ReadFile(path))(t)
	_, section, _ := strings.Cut(string(content), heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var blocks []string
	for i, part := range strings.Split(section, "```") {
		if commands, ok := strings.CutPrefix(part, "sh test\n"); ok && i%2 == 1 {
			blocks = append(blocks, commands)
		}
	}
	testutil.Require(t, len(blocks) >= 4, "%d blocks of commands in %s", len(blocks), path)
	return blocks
}

// shell runs commands of a page on the node: /etc/kubernetes is in the directory, our port
// is another, and the program and kubectl are in the path.
func (n *node) shell(t *testing.T, commands string) *exec.Cmd {
	t.Helper()
	commands = strings.ReplaceAll(commands, "/etc/kubernetes", n.path("/etc/kubernetes"))
	commands = strings.ReplaceAll(commands, "127.0.0.1:10261/", fmt.Sprintf("127.0.0.1:%d/", n.ownPort))
	kubectl, err := devcluster.ControlPlaneBinary("kubectl")
	testutil.Must(t, err)
	if kubectl, err = filepath.Abs(kubectl); err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	testutil.Must(t, os.Symlink(kubectl, filepath.Join(bin, "kubectl")))
	for name, program := range n.stands() {
		testutil.Must(t, os.WriteFile(filepath.Join(bin, name), []byte(program), 0o700))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*waitTimeout)
	t.Cleanup(cancel)
	bash := exec.CommandContext(ctx, "bash", "-euc", commands)
	bash.Dir = "../.." // a checkout
	bash.Env = append(os.Environ(), "KUBECONFIG="+n.path("/etc/kubernetes/admin.conf"), "PATH="+bin+":"+os.Getenv("PATH"))
	return bash
}

// stands are programs that stand for others, because a directory is no node.
func (n *node) stands() map[string]string {
	common := fmt.Sprintf("--node-name=%s --kubeconfig=%s --manifests-dir=%s",
		nodeName, n.path("/etc/kubernetes/admin.conf"), n.path("/etc/kubernetes/manifests"))
	return map[string]string{
		"hostname": "#!/bin/sh\necho " + nodeName + "\n",
		// Another node is a directory beside this one.
		"ssh": fmt.Sprintf("#!/bin/sh\nshift\nexec bash -euc \"$(echo \"$*\" | sed s#%s#%s#g)\"\n", n.root, n.another()),
		// Nobody waits for a day here.
		// What a takeover puts into our manifest are paths of the node.
		"sa-controller-manager": fmt.Sprintf(`#!/bin/bash
root=%[4]s
case "$1 $2 $3" in
"kubeadm takeover --only=signer") exec %[1]s "$@" %[2]s %[5]s ;;
"kubeadm takeover "*) exec %[1]s "${@//$root/}" %[2]s %[3]s ;;
"kubeadm "*) exec %[1]s "$@" %[2]s ;;
"keys rotate "*) exec %[1]s "$@" --cache-age=1s ;;
esac
exec %[1]s "$@"
`, n.binary, common, strings.Join(n.podFlags(), " "), n.root, strings.Join(n.podFlags()[:2], " ")),
	}
}

// another is the root of a second node, of which nothing runs.
func (n *node) another() string { return n.root + "-another" }

// ours is every object of the cluster whose name, labels or annotations bear our name.
// Events are left out: they go by themselves.
func (n *node) ours(t *testing.T) []string {
	t.Helper()
	config := testutil.Get(clientcmd.BuildConfigFromFlags("", n.path("/etc/kubernetes/admin.conf")))(t)
	config.QPS = -1
	client := testutil.Get(metadata.NewForConfig(config))(t)
	lists := testutil.Get(n.client.Discovery().ServerPreferredResources())(t)
	var found []string
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list"}}, lists) {
		version := testutil.Get(schema.ParseGroupVersion(list.GroupVersion))(t)
		for _, resource := range list.APIResources {
			if resource.Name == "events" {
				continue
			}
			objects := testutil.Get(client.Resource(version.WithResource(resource.Name)).List(t.Context(), metav1.ListOptions{}))(t)
			for _, object := range objects.Items {
				if bearsOurName(object.ObjectMeta) {
					found = append(found, resource.Name+"/"+object.Name)
				}
			}
		}
	}
	slices.Sort(found)
	return found
}

func bearsOurName(meta metav1.ObjectMeta) bool {
	names := []string{meta.Name}
	for key := range meta.Labels {
		names = append(names, key)
	}
	for key := range meta.Annotations {
		names = append(names, key)
	}
	return slices.ContainsFunc(names, func(name string) bool { return strings.Contains(name, "sa-controller-manager") })
}

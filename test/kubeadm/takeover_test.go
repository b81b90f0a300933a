// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/traffic"
)

var edited = []string{"kube-apiserver", "kube-controller-manager"}

func manifestOf(name string) string { return "/etc/kubernetes/manifests/" + name + ".yaml" }

// The whole way there and back on a live control plane, with Pods being created.
func TestTakeoverAndHandback(t *testing.T) {
	await.Long(t)
	t.Parallel() // a kube-apiserver takes half a minute to stop, in which nothing is to be done
	n := newNode(t)
	before := map[string]string{}
	for _, name := range edited {
		before[name] = string(n.read(t, manifestOf(name)))
	}
	awaitDefaultAccount(t, n, "default")

	tr := traffic.Start(t, func(ctx context.Context) (*corev1.Pod, error) {
		ctx, cancel := context.WithTimeout(ctx, waitTimeout)
		defer cancel()
		return n.client.CoreV1().Pods("default").Create(ctx, traffic.Pod(), metav1.CreateOptions{})
	})
	begun := time.Now()
	stdout, stderr := n.must(t, append([]string{"takeover", byURL}, n.podFlags()...)...)
	t.Logf("takeover took %s:\n%s", time.Since(begun).Round(time.Second), steps(stdout))
	if strings.Contains(stderr, "\r") {
		t.Errorf("there is no terminal, and still stderr has lines that are written over: %q", stderr)
	}
	for name, added := range map[string]string{
		"kube-apiserver": "    - --disable-admission-plugins=ServiceAccount\n",
		"kube-controller-manager": "    - --controllers=-serviceaccount-controller,-root-ca-certificate-publisher-controller," +
			"-legacy-serviceaccount-token-cleaner-controller,-kube-apiserver-serving-clustertrustbundle-publisher-controller\n" +
			"    - --service-account-private-key-file=\n",
	} {
		want := strings.Replace(before[name], "    image: ", added+"    image: ", 1)
		testutil.Check(t, "the manifest of "+name, want, string(n.read(t, manifestOf(name))))
	}
	weRun(t, n)

	// Everything is done, so nothing is.
	code, again, _ := n.kubeadm(t, "takeover")
	if code != 0 || strings.Contains(again, "+++") {
		t.Errorf("a second takeover: exit code %d\n%s", code, again)
	}

	begun = time.Now()
	stdout, _ = n.must(t, "handback")
	t.Logf("handback took %s:\n%s", time.Since(begun).Round(time.Second), steps(stdout))
	tr.Unharmed(t, traffic.Unanswered)
	n.handedBack(t, before)

	code, again, _ = n.kubeadm(t, "handback")
	if code != 0 || strings.Contains(again, "+++") {
		t.Errorf("a second handback: exit code %d\n%s", code, again)
	}
}

// What kube-apiserver does not accept, and what clients do not expect, must not become ours.
func TestTakeoverProvesKeyAndRootCA(t *testing.T) {
	await.Long(t)
	t.Parallel() // a kube-apiserver takes half a minute to stop, in which nothing is to be done
	const pki = "/etc/kubernetes/pki/"
	n := newNode(t, func(n *node) {
		testutil.Must(t, devcluster.WriteSigningKey(n.path(pki+"sa-2025.key"), devcluster.RSA))
		n.write(t, pki+"corp.crt", newAuthority(t).PEM())
		kcm := manifestOf("kube-controller-manager")
		n.write(t, kcm, bytes.Replace(n.read(t, kcm), []byte("pki/sa.key"), []byte("pki/sa-2025.key"), 1))
	})
	awaitDefaultAccount(t, n, "kube-system")
	poll(t, "the root CA is published", func(ctx context.Context) error {
		_, err := n.client.CoreV1().ConfigMaps("kube-system").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err
	})
	takeover := append([]string{"takeover"}, n.podFlags()...)
	const rightKey = "--extra-arg=--service-account-private-key-file=" + pki + "sa.key"
	for want, args := range map[string][]string{
		"kube-apiserver does not accept the key of " + pki + "sa-2025.key (kube-apiserver refuses its tokens: ": nil,
		"our process would change ConfigMap kube-root-ca.crt of every namespace to the certificates in " + pki + "corp.crt": {
			rightKey, "--extra-arg=--root-ca-file=" + pki + "corp.crt",
		},
	} {
		code, stdout, stderr := n.kubeadm(t, slices.Concat(takeover, args)...)
		if code != 1 || !strings.Contains(stderr, "Error: step 1, manager: "+want) {
			t.Errorf("exit code %d, stderr lacks %q:\n%s\n%s", code, want, stderr, stdout)
		}
		if n.exists(manifestOf("sa-controller-manager")) || n.exists("/etc/kubernetes/sa-controller-manager") {
			t.Error("something of ours has been written")
		}
	}
	n.must(t, append(takeover, rightKey)...)
	weRun(t, n)
}

// A step that does not come stops the command and changes nothing after it; the same
// command goes on from there, and handback needs no API server to begin.
func TestStepThatDoesNotCome(t *testing.T) {
	await.Long(t)
	t.Parallel() // a kube-apiserver takes half a minute to stop, in which nothing is to be done
	n := newNode(t)
	awaitDefaultAccount(t, n, "default")
	apiServer := string(n.read(t, manifestOf("kube-apiserver")))
	short := append([]string{"takeover", "--step-timeout=15s"}, n.podFlags()...)

	n.kubelet.pause(true)
	code, stdout, stderr := n.kubeadm(t, short...)
	for _, want := range []string{"Error: step 1, manager: it did not come within 15s", "Nothing of the control plane has been changed",
		"Running the same command again continues from here"} {
		if code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("exit code %d, want 1; stderr lacks %q:\n%s\n%s", code, want, stderr, stdout)
		}
	}
	if got := string(n.read(t, manifestOf("kube-apiserver"))); got != apiServer {
		t.Error("kube-apiserver's manifest has been changed too soon")
	}
	n.kubelet.pause(false)
	n.must(t, append([]string{"takeover"}, "--steps=manager")...)

	n.kubelet.pause(true)
	code, _, stderr = n.kubeadm(t, "takeover", "--step-timeout=1s")
	if want := "step 2, kube-controller-manager: it did not come within 1s: the kubelet still runs Pod kube-controller-manager-" +
		nodeName; code != 1 || !strings.Contains(stderr, want) {
		t.Errorf("exit code %d, stderr lacks %q:\n%s", code, want, stderr)
	}
	if got := string(n.read(t, manifestOf("kube-apiserver"))); got != apiServer {
		t.Error("kube-apiserver's manifest has been changed too soon")
	}
	n.kubelet.pause(false)
	n.must(t, "takeover")
	weRun(t, n)

	// Break kube-apiserver. The handback removes only its own lines.
	path := n.path(manifestOf("kube-apiserver"))
	broken := strings.Replace(string(n.read(t, manifestOf("kube-apiserver"))), "--disable-admission-plugins=ServiceAccount",
		"--disable-admission-plugins=ServiceAccount,NoSuchPlugin", 1)
	testutil.Must(t, os.WriteFile(path, []byte(broken), 0o600))
	poll(t, "kube-apiserver is down", func(ctx context.Context) error {
		if _, err := n.client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err == nil {
			return errors.New("it answers")
		}
		return nil
	})
	code, stdout, stderr = n.kubeadm(t, "handback", "--step-timeout=2s")
	if code != 1 || !strings.Contains(stderr, "step 1, kube-apiserver: it did not come within 2s") {
		t.Errorf("exit code %d:\n%s\n%s", code, stdout, stderr)
	}
	repaired := strings.Replace(string(n.read(t, manifestOf("kube-apiserver"))), "    - --disable-admission-plugins=NoSuchPlugin\n", "", 1)
	testutil.Check(t, "more than our edit was taken out", apiServer, repaired)
	testutil.Must(t, os.WriteFile(path, []byte(repaired), 0o600))
	n.must(t, "handback")
	weAreGone(t, n)
}

// weRun: a new namespace has its account, a Pod there its token, and it is us who sign.
func weRun(t *testing.T, n *node) {
	t.Helper()
	if by := newcomer(t, n); by != "sa-controller-manager" {
		t.Errorf("a token Secret was filled by %q", by)
	}
}

// weAreGone: the same, by the two others; and nothing of ours is left that acts.
func weAreGone(t *testing.T, n *node) {
	t.Helper()
	if by := newcomer(t, n); by != "kube-controller-manager" {
		t.Errorf("a token Secret was filled by %q", by)
	}
	api := n.client.AdmissionregistrationV1()
	if _, err := api.MutatingWebhookConfigurations().Get(t.Context(), "00-sa-controller-manager",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the mutating configuration: %v", err)
	}
	if _, err := api.ValidatingWebhookConfigurations().Get(t.Context(), "00-sa-controller-manager",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the validating configuration: %v", err)
	}
	for _, name := range []string{manifestOf("sa-controller-manager"),
		"/etc/kubernetes/sa-controller-manager-patches/kube-apiserver-sa-controller-manager+json.yaml"} {
		if n.exists(name) {
			t.Errorf("%s is still there", name)
		}
	}
}

// newcomer makes a namespace, a Pod and a token Secret in it, and says who has filled
// the Secret.
func newcomer(t *testing.T, n *node) string {
	t.Helper()
	namespace, err := n.client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	testutil.Must(t, err)
	awaitDefaultAccount(t, n, namespace.Name)
	pod, err := n.client.CoreV1().Pods(namespace.Name).Create(t.Context(), traffic.Pod(), metav1.CreateOptions{})
	if err == nil {
		err = traffic.Complete(pod)
	}
	if err != nil {
		t.Errorf("a Pod in %s: %v", namespace.Name, err)
	}
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

// steps are the lines that say how long each step took.
func steps(stdout string) string {
	var lines []string
	for line := range strings.Lines(stdout) {
		if strings.HasPrefix(line, "Step ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return strings.Join(lines, "\n")
}

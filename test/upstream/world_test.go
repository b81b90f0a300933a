// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/faultproxy"
)

// waitTimeout bounds every wait. Only a failing test reaches it.
const waitTimeout = 3 * time.Minute

// program is a token controller.
type program struct {
	name  string
	buggy bool // it is the one that has the bugs
	run   func(flags ...string) (*devcluster.Manager, error)
}

func programs(c *devcluster.Cluster, binary devcluster.Binary) []program {
	return []program{
		{
			name: "kube-controller-manager", buggy: true,
			run: func(flags ...string) (*devcluster.Manager, error) {
				return c.StartKubeControllerManager(append([]string{
					"--controllers=serviceaccount,serviceaccount-token,root-ca-certificate-publisher-controller",
					// For its metrics.
					"--authentication-kubeconfig=" + c.Kubeconfig(), "--authorization-kubeconfig=" + c.Kubeconfig(),
					"--client-ca-file=" + c.ClientCAFile(),
					"-v=4", // at which it tells that it gives a key up
				}, flags...)...)
			},
		},
		{
			name: "sa-controller-manager",
			run: func(flags ...string) (*devcluster.Manager, error) {
				return binary.StartManager(c, append([]string{"--token-secrets=manual"}, flags...)...)
			},
		},
	}
}

// world is a program on the control plane, behind a proxy.
type world struct {
	program program
	cluster *devcluster.Cluster
	client  kubernetes.Interface
	proxy   *faultproxy.Proxy
	manager *devcluster.Manager
	// kubeconfig leads to the proxy and names the CA by its path.
	kubeconfig string
	// caFile is the file of the root CAs and, at the same time, of the CAs of clients.
	caFile string
	// flags are those that scenarios want.
	flags []string
	// left is the namespace of who prepared something before the start.
	left string
}

func newWorld(t *testing.T, c *devcluster.Cluster, p program) *world {
	t.Helper()
	client, err := c.Client()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	w := &world{
		program: p, cluster: c, client: client, proxy: faultproxy.ForTest(t, c.Config()),
		kubeconfig: filepath.Join(dir, "kubeconfig"), caFile: filepath.Join(dir, "ca.crt"),
	}
	if err := w.proxy.WriteKubeconfig(w.kubeconfig); err != nil {
		t.Fatal(err)
	}
	w.writeCAs(t, c.CAFile(), c.ClientCAFile())
	w.flags = []string{"--kubeconfig=" + w.kubeconfig, "--root-ca-file=" + w.caFile, "--client-ca-file=" + w.caFile}
	return w
}

// writeCAs replaces the file, and returns what it holds.
func (w *world) writeCAs(t *testing.T, files ...string) string {
	t.Helper()
	var all []byte
	for _, file := range files {
		pem, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = slices.Concat(all, pem)
	}
	next := w.caFile + ".new"
	if err := os.WriteFile(next, all, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, w.caFile); err != nil {
		t.Fatal(err)
	}
	return string(all)
}

// withoutRootCA has the program know the root CA from its kubeconfig alone, in which it is
// a path.
func (w *world) withoutRootCA(t *testing.T) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(w.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	path := w.kubeconfig + ".ca"
	for _, cluster := range config.Clusters {
		if err := os.WriteFile(path, cluster.CertificateAuthorityData, 0o600); err != nil {
			t.Fatal(err)
		}
		cluster.CertificateAuthorityData, cluster.CertificateAuthority = nil, path
	}
	if err := clientcmd.WriteToFile(*config, w.kubeconfig); err != nil {
		t.Fatal(err)
	}
	w.flags = append(w.flags, "--root-ca-file=")
}

// start starts the program, which ends with the test.
func (w *world) start(t *testing.T) {
	t.Helper()
	var err error
	if w.manager, err = w.program.run(w.flags...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.use()
		if t.Failed() {
			t.Logf("the last words of %s:\n%s", w.program.name, w.manager.LogTail(20))
		}
		if _, err := w.manager.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := w.manager.Ready(limited(t)); err != nil {
		t.Fatal(err)
	}
}

// use has these faults happen, and no others.
func (w *world) use(rules ...*faultproxy.Rule) { w.proxy.Use(rules...) }

// awaitRequests returns once enough is true of what was asked.
func (w *world) awaitRequests(t *testing.T, match faultproxy.Match, enough func([]faultproxy.Request) bool) {
	t.Helper()
	if err := w.proxy.Await(limited(t), match, enough); err != nil {
		t.Fatal(err)
	}
}

// said is how often the program has logged that.
func (w *world) said(text string) int { return strings.Count(w.manager.Logs(), text) }

// passed returns once objects that come now have gone through watches and queues.
func (w *world) passed(t *testing.T) {
	t.Helper()
	namespace := w.namespace(t)
	for _, name := range []string{"first", "second"} { // the first one may overtake the start
		w.account(t, namespace, name)
		w.secret(t, namespace, name, name)
		w.awaitFilled(t, namespace, name)
	}
}

// fence returns once the program has dealt with all that came before.
func (w *world) fence(t *testing.T) {
	t.Helper()
	w.passed(t)
	if err := w.manager.AwaitIdle(limited(t)); err != nil {
		t.Fatal(err)
	}
}

// outcome is nil once all is well. A program with bugs also has the last word when it has
// said never more often than before: then what is not well stays so.
func (w *world) outcome(t *testing.T, well func() error, never string, before int) error {
	t.Helper()
	final := false
	poll(t, func(context.Context) error {
		final = w.program.buggy && w.said(never) > before
		if final {
			return nil
		}
		return well()
	})
	if final {
		w.fence(t)
	}
	return well()
}

func (w *world) namespace(t *testing.T) string {
	t.Helper()
	namespace, err := w.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "upstream-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return namespace.Name
}

func (w *world) account(t *testing.T, namespace, name string, references ...string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, reference := range references {
		account.Secrets = append(account.Secrets, corev1.ObjectReference{Name: reference})
	}
	if _, err := w.client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// references are the names in the account's list.
func (w *world) references(t *testing.T, namespace, name string) []string {
	t.Helper()
	account, err := w.client.CoreV1().ServiceAccounts(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, reference := range account.Secrets {
		names = append(names, reference.Name)
	}
	return names
}

// secret creates a token Secret as a user does.
func (w *world) secret(t *testing.T, namespace, name, account string, changes ...func(*corev1.Secret)) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: account}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	for _, change := range changes {
		change(secret)
	}
	made, err := w.client.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func (w *world) deleteSecret(t *testing.T, namespace, name string) {
	t.Helper()
	if err := w.client.CoreV1().Secrets(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// get is the Secret now, without regard to whether it is there.
func (w *world) get(t *testing.T, namespace, name string) (*corev1.Secret, error) {
	t.Helper()
	return w.client.CoreV1().Secrets(namespace).Get(t.Context(), name, metav1.GetOptions{})
}

func (w *world) awaitFilled(t *testing.T, namespace, name string) *corev1.Secret {
	t.Helper()
	var secret *corev1.Secret
	_, err := await.Secrets(limited(t), w.client, namespace, func(all []*corev1.Secret) error {
		found, ok := await.Find(all, name)
		if !ok || !filled(found) {
			return fmt.Errorf("%q has no token", name)
		}
		secret = found
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func filled(secret *corev1.Secret) bool { return len(secret.Data[corev1.ServiceAccountTokenKey]) > 0 }

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), waitTimeout, errors.New("the wait has timed out"))
	t.Cleanup(cancel)
	return ctx
}

func poll(t *testing.T, ask func(context.Context) error) {
	t.Helper()
	if err := await.Poll(limited(t), ask); err != nil {
		t.Fatal(err)
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/faultproxy"
	"sa-controller-manager/test/integration/testcluster"
)

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
	*testcluster.ControlPlane

	program program
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

func newWorld(t *testing.T, c *testcluster.ControlPlane, p program) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{
		ControlPlane: c, program: p, proxy: c.Proxy(t),
		kubeconfig: filepath.Join(dir, "kubeconfig"), caFile: filepath.Join(dir, "ca.crt"),
	}
	testutil.Must(t, w.proxy.WriteKubeconfig(w.kubeconfig))
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
		testutil.Must(t, err)
		all = slices.Concat(all, pem)
	}
	next := w.caFile + ".new"
	testutil.Must(t, os.WriteFile(next, all, 0o600))
	testutil.Must(t, os.Rename(next, w.caFile))
	return string(all)
}

// withoutRootCA has the program know the root CA from its kubeconfig alone, in which it is
// a path.
func (w *world) withoutRootCA(t *testing.T) {
	t.Helper()
	config, err := clientcmd.LoadFromFile(w.kubeconfig)
	testutil.Must(t, err)
	path := w.kubeconfig + ".ca"
	for _, cluster := range config.Clusters {
		testutil.Must(t, os.WriteFile(path, cluster.CertificateAuthorityData, 0o600))
		cluster.CertificateAuthorityData, cluster.CertificateAuthority = nil, path
	}
	testutil.Must(t, clientcmd.WriteToFile(*config, w.kubeconfig))
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
	testutil.Must(t, w.manager.Ready(testcluster.Context(t)))
}

// use has these faults happen, and no others.
func (w *world) use(rules ...*faultproxy.Rule) { w.proxy.Use(rules...) }

// said is how often the program has logged that.
func (w *world) said(text string) int { return strings.Count(w.manager.Logs(), text) }

// passed returns once objects that come now have gone through watches and queues.
func (w *world) passed(t *testing.T) {
	t.Helper()
	namespace := w.Namespace(t)
	for _, name := range []string{"first", "second"} { // the first one may overtake the start
		w.CreateAccount(t, namespace, name)
		w.CreateSecret(t, testcluster.TokenSecret(namespace, name, name))
		w.AwaitFilled(t, namespace, name)
	}
}

// fence returns once the program has dealt with all that came before.
func (w *world) fence(t *testing.T) {
	t.Helper()
	w.passed(t)
	testutil.Must(t, w.manager.AwaitIdle(testcluster.Context(t)))
}

// outcome is nil once all is well. A program with bugs also has the last word when it has
// said never more often than before: then what is not well stays so.
func (w *world) outcome(t *testing.T, well func() error, never string, before int) error {
	t.Helper()
	final := false
	testcluster.Poll(t, never, func() error {
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

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

// waitTimeout bounds every wait. It is long because it is only ever used up by a test that
// fails.
const waitTimeout = 2 * time.Minute

// samples are kubeadm's manifests.
const samples = "../../manifests/component/testdata/manifests/v1.37/"

// node is a control-plane node of kubeadm, on which everything runs.
type node struct {
	root    string
	binary  string
	client  kubernetes.Interface
	kubelet *kubelet

	apiPort, kcmPort, ownPort, webhookPort int
}

// newNode returns once kube-apiserver answers. Before anything of kubeadm's runs, prepare
// may change the files.
func newNode(t *testing.T, prepare ...func(*node)) *node {
	t.Helper()
	binary := testutil.Get(devcluster.FindBinary(t.Context()))(t)
	absolute := testutil.Get(filepath.Abs(binary.Path))(t)
	n := &node{root: t.TempDir(), binary: absolute}
	ports, err := devcluster.FreePorts(6)
	testutil.Must(t, err)
	n.apiPort, n.kcmPort, n.ownPort, n.webhookPort = ports[0], ports[1], ports[2], ports[3]
	n.writePKI(t)
	n.startEtcd(t, ports[4], ports[5])
	n.writeManifests(t, ports[4])
	for _, change := range prepare {
		change(n)
	}
	n.install(t, absolute)
	n.client = n.connect(t, rest.ImpersonationConfig{})
	kubeletUser := rest.ImpersonationConfig{UserName: "system:node:" + nodeName, Groups: []string{"system:nodes", "system:masters"}}
	n.kubelet = &kubelet{
		t: t, root: n.root, client: n.client, node: n.connect(t, kubeletUser),
		programs: map[string]string{"sa-controller-manager": n.binary},
	}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager"} {
		if n.kubelet.programs[name], err = devcluster.ControlPlaneBinary(name); err != nil {
			t.Fatal(err)
		}
		n.kubelet.programs[name], _ = filepath.Abs(n.kubelet.programs[name])
	}
	n.kubelet.start()
	poll(t, "kube-apiserver answers", func(ctx context.Context) error {
		_, err := n.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	})
	return n
}

// path is a path of the node.
func (n *node) path(name string) string { return filepath.Join(n.root, name) }

func (n *node) write(t *testing.T, name string, data []byte) {
	t.Helper()
	testutil.Must(t, os.MkdirAll(filepath.Dir(n.path(name)), 0o700))
	testutil.Must(t, os.WriteFile(n.path(name), data, 0o600))
}

// install copies our binary. The kubelet runs the original in its place.
func (n *node) install(t *testing.T, binary string) {
	t.Helper()
	data := testutil.Get(os.ReadFile(binary))(t)
	const place = "/usr/local/bin/sa-controller-manager"
	n.write(t, place, data)
	testutil.Must(t, os.Chmod(n.path(place), 0o700))
}

func (n *node) read(t *testing.T, name string) []byte {
	t.Helper()
	return testutil.Get(os.ReadFile(n.path(name)))(t)
}

func (n *node) exists(name string) bool {
	_, err := os.Stat(n.path(name))
	return !errors.Is(err, fs.ErrNotExist)
}

func (n *node) writePKI(t *testing.T) {
	t.Helper()
	const pki = "/etc/kubernetes/pki/"
	ca := testutil.Get(devcluster.NewAuthority("kubernetes"))(t)
	caKey, err1 := ca.Key()
	serving, servingKey, err2 := ca.Server("127.0.0.1")
	testutil.Must(t, errors.Join(err1, err2))
	n.write(t, pki+"ca.crt", ca.PEM())
	n.write(t, pki+"ca.key", caKey)
	n.write(t, pki+"apiserver.crt", serving)
	n.write(t, pki+"apiserver.key", servingKey)
	testutil.Must(t, devcluster.WriteSigningKey(n.path(pki+"sa.key"), devcluster.RSA))
	n.write(t, pki+"sa.pub", publicKey(t, n.read(t, pki+"sa.key")))
	server := "https://127.0.0.1:" + strconv.Itoa(n.apiPort)
	n.write(t, "/etc/kubernetes/admin.conf", userKubeconfig(t, ca, server, "kubernetes-admin", "system:masters"))
	n.write(t, "/etc/kubernetes/controller-manager.conf", userKubeconfig(t, ca, server, "system:kube-controller-manager"))
}

// userKubeconfig is that of a user.
func userKubeconfig(t *testing.T, ca *devcluster.Authority, server, user string, groups ...string) []byte {
	t.Helper()
	cert, key, err := ca.Client(user, groups...)
	testutil.Must(t, err)
	data := testutil.Get(clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"kubernetes": {Server: server, CertificateAuthorityData: ca.PEM()}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: cert, ClientKeyData: key}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "kubernetes", AuthInfo: user}},
		CurrentContext: "c",
	}))(t)
	return data
}

// publicKey is the public half of a private key.
func publicKey(t *testing.T, private []byte) []byte {
	t.Helper()
	key := testutil.Get(signing.ParsePrivateKey(private))(t)
	return testutil.Get(signing.EncodePublicKeys(key.Public()))(t)
}

func (n *node) startEtcd(t *testing.T, port, peerPort int) {
	t.Helper()
	etcd := testutil.Get(devcluster.ControlPlaneBinary("etcd"))(t)
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", port), fmt.Sprintf("http://127.0.0.1:%d", peerPort)
	child := testutil.Get(devcluster.StartChild("etcd", etcd, n.root, []string{
		"--data-dir=" + n.path("/var/lib/etcd"), "--unsafe-no-fsync", "--log-level=warn", "--name=n",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=n=" + peer,
	}))(t)
	t.Cleanup(func() {
		_, err := child.Kill()
		testutil.Expect(t, err == nil, "%v", err)
	})
}

// writeManifests takes kubeadm's and changes no more than what a machine without a node
// and with other ports needs.
func (n *node) writeManifests(t *testing.T, etcdPort int) {
	t.Helper()
	for name, lines := range map[string]map[string]string{
		"kube-apiserver": {
			"advertise-address": "127.0.0.1",
			"secure-port":       strconv.Itoa(n.apiPort),
			"etcd-servers":      fmt.Sprintf("http://127.0.0.1:%d", etcdPort),
			// An Endpoints object may not hold a loopback address.
			"kubelet-preferred-address-types": "InternalIP\n    - --endpoint-reconciler-type=none",
			"etcd-cafile":                     "", "etcd-certfile": "", "etcd-keyfile": "",
			"kubelet-client-certificate": "", "kubelet-client-key": "",
			"proxy-client-cert-file": "", "proxy-client-key-file": "",
			"requestheader-allowed-names": "", "requestheader-client-ca-file": "",
			"requestheader-extra-headers-prefix": "", "requestheader-group-headers": "", "requestheader-username-headers": "",
		},
		"kube-controller-manager": {
			"bind-address":                 "127.0.0.1\n    - --secure-port=" + strconv.Itoa(n.kcmPort),
			"allocate-node-cidrs":          "false",
			"requestheader-client-ca-file": "",
		},
	} {
		data := testutil.Get(os.ReadFile(samples + name + ".yaml"))(t)
		for flag, value := range lines {
			line := regexp.MustCompile(`(?m)^    - --` + flag + `=.*\n`)
			testutil.Require(t, line.Match(data), "the manifest of %s has no --%s", name, flag)
			replacement := ""
			if value != "" {
				replacement = "    - --" + flag + "=" + value + "\n"
			}
			data = line.ReplaceAllLiteral(data, []byte(replacement))
		}
		n.write(t, "/etc/kubernetes/manifests/"+name+".yaml", data)
	}
}

// connect returns a client of an administrator. With a node's name it passes for its kubelet, because only what
// a node is known by is wanted, and no rights of its own.
func (n *node) connect(t *testing.T, user rest.ImpersonationConfig) kubernetes.Interface {
	t.Helper()
	config := testutil.Get(clientcmd.BuildConfigFromFlags("", n.path("/etc/kubernetes/admin.conf")))(t)
	config.QPS, config.Impersonate, config.WarningHandler = -1, user, rest.NoWarnings{}
	transport := testutil.Get(rest.HTTPClientFor(config))(t)
	t.Cleanup(transport.CloseIdleConnections)
	return testutil.Get(kubernetes.NewForConfigAndClient(config, transport))(t)
}

// must runs a sub-command on the node, which has to succeed.
func (n *node) must(t *testing.T, args ...string) {
	t.Helper()
	common := []string{
		"kubeadm", args[0], "--node-name=" + nodeName,
		"--kubeconfig=" + n.path("/etc/kubernetes/admin.conf"),
		"--manifests-dir=" + n.path("/etc/kubernetes/manifests"),
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*waitTimeout)
	defer cancel()
	if printed, err := exec.CommandContext(ctx, n.binary, append(common, args[1:]...)...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s\n%s", args[0], err, printed, n.kubelet)
	}
}

// podFlags are what our process needs on a machine that has other things on its ports.
func (n *node) podFlags() []string {
	return []string{
		"--binary=/usr/local/bin/sa-controller-manager",
		"--extra-arg=--secure-port=" + strconv.Itoa(n.ownPort),
		"--extra-arg=--webhook-port=" + strconv.Itoa(n.webhookPort),
	}
}

// poll asks until ok is satisfied. It is for what nothing announces.
func poll(t *testing.T, what string, ok func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	err := await.Poll(ctx, ok)
	testutil.Require(t, err == nil, "%s: %v", what, err)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

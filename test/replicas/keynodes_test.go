// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package replicas

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/tokens"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

// keyNodes are two or three, with what they have issued.
type keyNodes struct {
	first, second, third *keyNode // the third may be nil

	binary devcluster.Binary
	step   int
	good   []issued
}

// keyNode is a host.
type keyNode struct {
	*devcluster.Cluster

	name    string
	client  kubernetes.Interface
	manager *devcluster.Manager
	down    bool
}

func (n *keyNode) pki(name string) string { return filepath.Join(n.Dir(), "pki", name) }

// issued is a token, bound or that of the Secret, which has no audience.
type issued struct {
	what, token, keyID string
	bound              bool
}

func newKeyNodes(t *testing.T, more ...string) *keyNodes {
	t.Helper()
	host := testutil.Get(os.Hostname())(t)
	p := &keyNodes{first: &keyNode{name: host}, second: &keyNode{name: "cp-2"}, binary: currentBinary(t)}
	node := p.first
	cluster := testutil.Get(devcluster.Start(t.Context(), devcluster.Options{
		ExternalSigner: true,
		BeforeAPIServer: func(cluster *devcluster.Cluster) error {
			node.Cluster = cluster
			return p.prepare(t, node)
		},
	}))(t)
	stops(t, cluster)
	joining := []*keyNode{p.second}
	for _, name := range more {
		p.third = &keyNode{name: name}
		joining = append(joining, p.third)
	}
	for _, node = range joining {
		joined, err := cluster.Join(t.Context(), node.name)
		if errors.Is(err, os.ErrPermission) {
			t.Skipf("only root can make hosts: %v", err)
		}
		testutil.Must(t, err)
		stops(t, joined)
	}
	for _, node := range p.nodes() {
		node.client = client(t, node.Cluster)
		testutil.Must(t, node.manager.Ready(limited(t)))
	}
	for _, namespace := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem} {
		poll(t, "await an account", func(ctx context.Context) error {
			_, err := p.second.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
			return err
		})
	}
	p.createSecret(t)
	p.hold(t, p.first.signs(t))
	return p
}

// nodes are those that are up.
func (p *keyNodes) nodes() []*keyNode {
	return slices.DeleteFunc([]*keyNode{p.first, p.second, p.third}, func(n *keyNode) bool { return n == nil || n.down })
}

// prepare is what is done on a node before kube-apiserver is started there.
func (p *keyNodes) prepare(t *testing.T, n *keyNode) error {
	t.Helper()
	if err := os.MkdirAll(n.pki(""), 0o700); err != nil {
		return err
	}
	if n == p.first {
		p.keys(t, n, "init", "--from-private-key-file="+n.SigningKeyFile())
	} else {
		p.copyRing(t, n)
	}
	return p.startManager(n)
}

func (p *keyNodes) startManager(n *keyNode) (err error) {
	n.manager, err = p.binary.StartManager(n.Cluster, "--token-secrets=manual", "--leader-elect=true",
		"--service-account-private-key-file=", "--service-account-key-ring="+n.ring(),
		"--external-signer-socket="+n.SignerSocket(), "--external-signer-refresh-hint=2s")
	return err
}

func (p *keyNodes) createSecret(t *testing.T) {
	t.Helper()
	_, err := p.first.client.CoreV1().Secrets(metav1.NamespaceDefault).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "held", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{})
	testutil.Must(t, err)
}

// hold keeps the token of the Secret, once a key has signed it.
func (p *keyNodes) hold(t *testing.T, keyID string) {
	t.Helper()
	poll(t, "await the token of the Secret", func(ctx context.Context) error {
		secret, err := p.first.client.CoreV1().Secrets(metav1.NamespaceDefault).Get(ctx, "held", metav1.GetOptions{})
		if err != nil {
			return err
		}
		token := string(secret.Data[corev1.ServiceAccountTokenKey])
		if token == "" {
			return errors.New("it has none")
		}
		if id := keyIDOf(t, token); id != keyID {
			return fmt.Errorf("it is of key %s, want %s", id, keyID)
		}
		p.good = append(p.good, issued{"of the Secret", token, keyID, false})
		return nil
	})
}

// keyRing is what the commands print.
type keyRing struct {
	Generation int64
	Keys       []ringKey
}

type ringKey struct{ ID, Role, Accepted string }

// next returns the ID of the next key, and active that of the active one.
func (r keyRing) next() string   { return r.of("next") }
func (r keyRing) active() string { return r.of("active") }

func (r keyRing) of(role string) string {
	for _, key := range r.Keys {
		if key.Role == role {
			return key.ID
		}
	}
	return ""
}

// keys runs a command on a node.
func (p *keyNodes) keys(t *testing.T, n *keyNode, words ...string) (ring keyRing) {
	t.Helper()
	stdout, stderr, err := p.run(t, n, words...)
	testutil.Require(t, err == nil, "keys %v: %v\n%s%s", words, err, stdout, stderr)
	if err := json.Unmarshal(stdout, &ring); err != nil {
		t.Fatalf("keys %v: %v in %s", words, err, stdout)
	}
	return ring
}

func (p *keyNodes) refuses(t *testing.T, sentence string, n *keyNode, words ...string) {
	t.Helper()
	stdout, stderr, err := p.run(t, n, words...)
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 || !strings.Contains(string(stderr), sentence) {
		t.Errorf("keys %v: %v, want exit code 1 and %q:\n%s%s", words, err, sentence, stdout, stderr)
	}
}

// run runs a command on a node, which asks every kube-apiserver that is up.
func (p *keyNodes) run(t *testing.T, n *keyNode, words ...string) (stdout, stderr []byte, err error) {
	t.Helper()
	args := append(append([]string{"keys"}, words...), "--service-account-key-ring="+n.ring(), "-o=json")
	if words[0] != "init" {
		args = append(args, "--kubeconfig="+n.Kubeconfig())
		for _, other := range p.nodes() {
			if other.Cluster != nil {
				args = append(args, "--apiserver="+other.Config().Host)
			}
		}
	}
	command := exec.CommandContext(limited(t), p.binary.Path, args...)
	command.Env = append(os.Environ(), "NODE_NAME="+n.name)
	var out, complaint bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaint
	err = command.Run()
	return out.Bytes(), complaint.Bytes(), err
}

// ring is the ring file of a node.
func (n *keyNode) ring() string { return n.pki("sa-keys/ring.json") }

// copyRing brings the ring of the first node to another one.
func (p *keyNodes) copyRing(t *testing.T, to *keyNode) {
	t.Helper()
	testutil.Must(t, os.MkdirAll(to.pki(""), 0o700))
	command := exec.CommandContext(limited(t), p.binary.Path, "keys", "import", "--service-account-key-ring="+to.ring(), p.first.ring())
	out, err := command.CombinedOutput()
	testutil.Require(t, err == nil, "keys import: %v\n%s", err, out)
}

// audiences are in every token, one for each judgement: kube-apiserver remembers what it has accepted for ten seconds.
func audiences() []string {
	var all []string
	for step := range 30 {
		all = append(all, fmt.Sprintf("step-%d", step))
	}
	return all
}

// signs is the ID of the key that kube-apiserver signs with.
func (n *keyNode) signs(t *testing.T) string {
	t.Helper()
	token := testutil.Get(n.request(t.Context()))(t)
	return keyIDOf(t, token)
}

func (n *keyNode) request(ctx context.Context) (string, error) {
	answer, err := n.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).CreateToken(ctx, "default", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{Audiences: audiences()},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return answer.Status.Token, nil
}

func (n *keyNode) accepts(ctx context.Context, token string, audiences ...string) (bool, error) {
	review, err := n.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Authenticated, nil
}

func keyIDOf(t *testing.T, token string) string {
	t.Helper()
	content := testutil.Get(tokens.Inspect(token))(t)
	return content.KeyID
}

// waitTimeout bounds every wait. Only a failing test reaches it.
const waitTimeout = 3 * time.Minute

func TestMain(m *testing.M) {
	// A race-enabled binary sleeps a second at its end by default. Its races are read
	// from its log.
	if os.Getenv("GORACE") == "" {
		if err := os.Setenv("GORACE", "atexit_sleep_ms=0 exitcode=0"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	goleak.VerifyTestMain(m)
}

func stops(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	t.Cleanup(func() {
		err := c.Stop()
		testutil.Expect(t, err == nil, "%v", err)
	})
}

func client(t *testing.T, c *devcluster.Cluster) kubernetes.Interface {
	t.Helper()
	return testutil.Get(c.Client())(t)
}

// limited bounds a wait.
func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), waitTimeout, errors.New("the wait has timed out"))
	t.Cleanup(cancel)
	return ctx
}

// poll asks until ok is satisfied. It is for what nothing announces.
func poll(t *testing.T, what string, ok func(context.Context) error) {
	t.Helper()
	err := await.Poll(limited(t), ok)
	testutil.Require(t, err == nil, "%s: %v", what, err)
}

func currentBinary(t *testing.T) devcluster.Binary {
	t.Helper()
	return testutil.Get(devcluster.FindBinary(t.Context()))(t)
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"sa-controller-manager/test/await"
)

const ringFlag = "--service-account-key-ring=/etc/kubernetes/pki/sa-keys/ring.json"

// TestRotation has kube-apiserver use our signer, and rotates from RSA to ECDSA and back
// while Pods are created, tokens requested and used. Nobody notices.
func TestRotation(t *testing.T) {
	c := create(t, stock(t, 1))
	c.awaitPods(t, metav1.NamespaceSystem, allReady)
	rsa := c.keys(t, "init", "--from-private-key-file=/etc/kubernetes/pki/sa.key").role(t, "active")
	t.Log(c.product(t, "kubeadm", "takeover", "--external-signer", "--extra-arg=--service-account-private-key-file=",
		"--extra-arg="+ringFlag, "--extra-arg=--external-signer-refresh-hint=2s"))
	namespace := c.namespace(t, "rotation")
	c.awaitDefaultAccount(t, namespace)
	callers := []*caller{c.newCaller(t, namespace, c.controlPlane()), c.newCaller(t, namespace, c.name+"-worker")}
	for _, one := range callers {
		one.awaitMore(t, rsa)
	}
	clients := c.startClients(t, namespace)
	started := c.apiServerStart(t)
	traffic := c.traffic(t, namespace)

	ecdsa := c.keys(t, "rotate", "start", "--algorithm=P-256", "--cache-age=0s").role(t, "next")
	c.keys(t, "rotate", "complete", "--wait")
	c.awaitSigner(t, namespace, ecdsa)
	for _, one := range callers {
		one.awaitMore(t, rsa) // with the token that it has had before
	}
	c.newCaller(t, namespace, c.name+"-worker").awaitMore(t, ecdsa)
	c.keys(t, "rollback")
	c.awaitSigner(t, namespace, rsa)
	callers = append(callers, c.newCaller(t, namespace, c.name+"-worker"))
	for _, one := range callers {
		one.awaitMore(t, rsa)
	}

	traffic.finish()
	clients.finish(t)
	for _, one := range traffic.calls {
		if one.err != nil {
			t.Errorf("a Pod was not created at %s: %v", one.begun.Format(time.TimeOnly), one.err)
		}
	}
	traffic.examine(t)
	c.runSample(t, traffic)
	if now := c.apiServerStart(t); now != started {
		t.Errorf("kube-apiserver was restarted: %s, then %s", started, now)
	}
}

// keyRing is what the commands print for programs.
type keyRing struct {
	Keys []struct{ ID, Role string }
}

func (r keyRing) role(t *testing.T, role string) string {
	t.Helper()
	for _, key := range r.Keys {
		if key.Role == role {
			return key.ID
		}
	}
	t.Fatalf("no key is %s in %+v", role, r)
	return ""
}

// keys runs a command on the node.
func (c *cluster) keys(t *testing.T, words ...string) (ring keyRing) {
	t.Helper()
	args := append([]string{"keys"}, words...)
	out := c.product(t, append(args, ringFlag, "--kubeconfig=/etc/kubernetes/admin.conf", "-o=json")...)
	if err := json.Unmarshal([]byte(out), &ring); err != nil {
		t.Fatalf("keys %v: %v in %s", words, err, out)
	}
	return ring
}

// apiServerStart tells one process from another.
func (c *cluster) apiServerStart(t *testing.T) string {
	t.Helper()
	text, err := c.client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^process_start_time_seconds .*$`).FindString(string(text))
}

// awaitSigner returns once a requested token bears the key.
func (c *cluster) awaitSigner(t *testing.T, namespace, id string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, waitTimeout, true, func(ctx context.Context) (bool, error) {
		token, err := c.requestToken(ctx, namespace)
		return err == nil && keyID(token) == id, err
	})
	if err != nil {
		t.Fatalf("await that key %s signs: %v", id, err)
	}
}

func (c *cluster) requestToken(ctx context.Context, namespace string) (string, error) {
	answer, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return answer.Status.Token, nil
}

// keyID is that of a token's header, "" if there is none.
func keyID(token string) string {
	segment, _, _ := strings.Cut(token, ".")
	data, _ := base64.RawURLEncoding.DecodeString(segment)
	var header struct {
		KeyID string `json:"kid"`
	}
	_ = json.Unmarshal(data, &header)
	return header.KeyID
}

// caller is a Pod that calls the API without end, with what was mounted.
type caller struct {
	cluster *cluster
	pod     *corev1.Pod
}

func (c *cluster) newCaller(t *testing.T, namespace, node string) *caller {
	t.Helper()
	pod := c.asker(t, on(node), func(pod *corev1.Pod) {
		pod.Spec.Containers[0].Command = append(pod.Spec.Containers[0].Command, "-for-ever")
	})
	pod, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create the Pod: %v", err)
	}
	return &caller{cluster: c, pod: c.awaitPhase(t, pod, corev1.PodRunning)}
}

// awaitMore returns once the Pod has made more calls with a token of the key, none of which
// has failed.
func (c *caller) awaitMore(t *testing.T, id string) {
	t.Helper()
	least := -1
	err := wait.PollUntilContextTimeout(t.Context(), 200*time.Millisecond, waitTimeout, true, func(ctx context.Context) (bool, error) {
		told, err := c.told(ctx)
		switch {
		case err != nil:
			return false, nil //nolint:nilerr // nothing was printed yet
		case told.Failed > 0:
			return false, fmt.Errorf("%d of %d calls have failed, the first with %s", told.Failed, told.Calls, told.First)
		case told.KeyID != id:
			return false, fmt.Errorf("its token is of key %s", told.KeyID)
		case least < 0:
			least = told.Calls + 10
		}
		return told.Calls >= least, nil
	})
	if err != nil {
		t.Fatalf("await calls of Pod %s with a token of key %s: %v", c.pod.Name, id, err)
	}
}

// told is the last line that the Pod has printed.
func (c *caller) told(ctx context.Context) (told struct {
	Calls, Failed int
	First, KeyID  string
}, err error) {
	lines := int64(1)
	log, err := c.cluster.client.CoreV1().Pods(c.pod.Namespace).GetLogs(c.pod.Name, &corev1.PodLogOptions{TailLines: &lines}).DoRaw(ctx)
	if err != nil {
		return told, err
	}
	return told, json.Unmarshal(log, &told)
}

// clients request and use tokens.
type clients struct {
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	made   int
	failed []error
}

// startClients begins at once: with a bound token and the token of a Secret that are there
// before, and with new ones.
func (c *cluster) startClients(t *testing.T, namespace string) *clients {
	t.Helper()
	bound, err := c.requestToken(t.Context(), namespace)
	if err != nil {
		t.Fatal(err)
	}
	legacy := c.tokenSecret(t, namespace)
	ctx, cancel := context.WithCancel(t.Context())
	l := &clients{stop: cancel}
	for _, token := range []string{bound, legacy} {
		every(ctx, &l.running, callInterval, func() { l.count(c.use(t.Context(), token)) })
	}
	every(ctx, &l.running, callInterval, func() {
		token, err := c.requestToken(t.Context(), namespace)
		l.count(err)
		if err == nil {
			l.count(c.use(t.Context(), token))
		}
	})
	t.Cleanup(func() { l.stop(); l.running.Wait() })
	return l
}

func (l *clients) count(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made++
	if err != nil {
		l.failed = append(l.failed, err)
	}
}

func (l *clients) finish(t *testing.T) {
	t.Helper()
	l.stop()
	l.running.Wait()
	t.Logf("%d calls made, %d failed", l.made, len(l.failed))
	if l.made < 100 {
		t.Errorf("only %d calls were made", l.made)
	}
	if len(l.failed) > 0 {
		t.Errorf("%d of %d calls have failed: %v", len(l.failed), l.made, errors.Join(l.failed[:min(5, len(l.failed))]...))
	}
}

// use asks who the bearer of a token is.
func (c *cluster) use(ctx context.Context, token string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	config := rest.AnonymousClientConfig(c.config)
	config.BearerToken = token
	config.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return err
}

// tokenSecret is the token of a Secret that kube-apiserver accepts already.
func (c *cluster) tokenSecret(t *testing.T, namespace string) (token string) {
	t.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "held", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	if _, err := c.client.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	_, err := await.Secrets(ctx, c.client, namespace, func(secrets []*corev1.Secret) error {
		found, ok := await.Find(secrets, "held")
		if !ok || len(found.Data[corev1.ServiceAccountTokenKey]) == 0 {
			return errors.New("the secret has no token")
		}
		token = string(found.Data[corev1.ServiceAccountTokenKey])
		return nil
	})
	if err == nil {
		err = await.Poll(ctx, func(ctx context.Context) error { return c.use(ctx, token) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return token
}

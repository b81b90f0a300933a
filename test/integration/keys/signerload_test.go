// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// load is the calls of clients and their results.
type load struct {
	cluster *signerCluster
	account *corev1.ServiceAccount
	// requestTimeout bounds a TokenRequest.
	requestTimeout time.Duration

	stop    context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	kinds   map[string]*tally
	keyIDs  map[string]int // of requested tokens
	tokens  []string
	longest time.Duration // a TokenRequest took
}

// tally counts one kind of call.
type tally struct {
	made, failed int
	first        error
	from, to     time.Time // the first and the last failure
}

const (
	requestKind = "TokenRequest"
	freshKind   = "call with a token just requested"
	boundKind   = "call with a bound token"
	legacyKind  = "call with a legacy token"
)

// startLoad begins: two clients that request a token and use it at once, one with a bound token from before and one with a
// legacy token from before. Each makes about 40 calls a second.
func (c *signerCluster) startLoad(t *testing.T, account *corev1.ServiceAccount) *load {
	t.Helper()
	bound := c.requested(t, account)
	legacy := c.IssueSignedBy(t, account, testcluster.KeyIDOfPEM(t, testcluster.ReadFile(t, c.key.Path)))
	c.ExpectAccepted(t, legacy, account) // kube-apiserver has seen the Secret
	l := &load{cluster: c, account: account, requestTimeout: 30 * time.Second, kinds: map[string]*tally{}, keyIDs: map[string]int{}}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	for range 2 {
		l.every(ctx, func() { l.requestAndUse(ctx, t) })
	}
	l.every(ctx, func() { l.use(ctx, boundKind, bound) })
	l.every(ctx, func() { l.use(ctx, legacyKind, string(legacy.Data[corev1.ServiceAccountTokenKey])) })
	t.Cleanup(func() { l.end() })
	return l
}

// end returns when every call has ended.
func (l *load) end() {
	l.stop()
	l.running.Wait()
	testcluster.Leaks.AddTokens(l.tokens)
	l.tokens = nil
}

func (l *load) every(ctx context.Context, do func()) {
	l.running.Go(func() {
		pace := time.NewTicker(25 * time.Millisecond)
		defer pace.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-pace.C:
				do()
			}
		}
	})
}

func (l *load) requestAndUse(ctx context.Context, t *testing.T) {
	limit, cancel := context.WithTimeout(ctx, l.requestTimeout)
	defer cancel()
	begun := time.Now()
	answer, err := l.cluster.request(limit, l.account, time.Hour)
	if ctx.Err() != nil {
		return
	}
	l.count(requestKind, err)
	if err != nil {
		return
	}
	header, _ := testcluster.DecodeToken(t, []byte(answer.Status.Token))
	l.mu.Lock()
	l.longest = max(l.longest, time.Since(begun))
	l.keyIDs[fmt.Sprint(header["kid"])]++
	l.tokens = append(l.tokens, answer.Status.Token)
	l.mu.Unlock()
	l.use(ctx, freshKind, answer.Status.Token)
}

// use makes a call that any token may make, with a client of its own: kube-apiserver verifies each token again.
func (l *load) use(ctx context.Context, kind, token string) {
	config := l.cluster.Config()
	config.CertData, config.KeyData, config.BearerToken = nil, nil, token
	client, err := kubernetes.NewForConfig(config)
	if err == nil {
		limit, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_, err = client.AuthenticationV1().SelfSubjectReviews().Create(limit, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	}
	if ctx.Err() == nil {
		l.count(kind, err)
	}
}

func (l *load) count(kind string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[kind]
	if k == nil {
		k = &tally{}
		l.kinds[kind] = k
	}
	k.made++
	if err == nil {
		return
	}
	if k.failed == 0 {
		k.first, k.from = err, time.Now()
	}
	k.failed++
	k.to = time.Now()
}

// made is how many calls of a kind there were.
func (l *load) made(kind string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.kinds[kind]; k != nil {
		return k.made
	}
	return 0
}

// signedBy is how many tokens were requested that bear a key ID.
func (l *load) signedBy(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.keyIDs[id]
}

// report logs what became of the calls.
func (l *load) report(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for kind, k := range l.kinds {
		t.Logf("%s: %d made, %d failed, in %v", kind, k.made, k.failed, k.to.Sub(k.from).Round(time.Millisecond))
	}
	t.Logf("the longest TokenRequest took %v", l.longest.Round(time.Millisecond))
}

// none holds calls of these kinds to never having failed, and to having been made.
func (l *load) none(t *testing.T, kinds ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, kind := range kinds {
		k := l.kinds[kind]
		if k == nil || k.made < 20 {
			t.Errorf("%s: too few calls: %+v", kind, k)
			continue
		}
		if k.failed > 0 {
			t.Errorf("%s: %d of %d failed, the first with %v", kind, k.failed, k.made, k.first)
		}
	}
}

// awaitMore returns when n more calls of a kind have been made.
func (l *load) awaitMore(t *testing.T, kind string, n int) {
	t.Helper()
	least := l.made(kind) + n
	testcluster.Poll(t, "await more calls", func() error {
		if made := l.made(kind); made < least {
			return fmt.Errorf("%d of kind %q, want %d", made, kind, least)
		}
		return nil
	})
}

// TestRotationUnderLoad changes the key from RSA to ECDSA and back, and then to a third one, while clients work.
func TestRotationUnderLoad(t *testing.T) {
	await.Long(t)
	c := startSigner(t, 0)
	account := c.CreateAccount(t, c.Namespace(t), "busy")
	l := c.startLoad(t, account)
	l.awaitMore(t, freshKind, 20)
	started := c.apiServerStart(t)
	first := testcluster.ReadFile(t, c.key.Path)
	for _, pem := range [][]byte{testcluster.ReadFile(t, newKey(t, devcluster.ECDSA)), first, testcluster.ReadFile(t, newKey(t, devcluster.RSA))} {
		next := testcluster.KeyIDOfPEM(t, pem)
		begun := time.Now()
		c.key.Replace(t, pem)
		c.manager.AwaitSigner(t, next)
		t.Logf("key %s signs %v after its file came", next, time.Since(begun).Round(time.Millisecond))
		before := l.signedBy(next)
		l.awaitMore(t, freshKind, 30)
		if l.signedBy(next) == before {
			t.Errorf("no token was signed by %s", next)
		}
		secret := c.IssueSignedBy(t, account, next)
		c.ExpectAccepted(t, secret, account)
	}
	l.end()
	l.report(t)
	l.none(t, requestKind, freshKind, boundKind, legacyKind)
	if now := c.apiServerStart(t); now != started {
		t.Errorf("kube-apiserver was restarted")
	}
}

// apiServerStart returns the start time of kube-apiserver, which differs after a restart.
func (c *signerCluster) apiServerStart(t *testing.T) float64 {
	t.Helper()
	metrics, err := c.APIServerMetrics(testcluster.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	return metrics.Sum("process_start_time_seconds", nil)
}

// TestSignerRestartUnderLoad ends the manager in order and then by force. Who has a token notices nothing; a TokenRequest waits.
func TestSignerRestartUnderLoad(t *testing.T) {
	await.Long(t)
	c := startSigner(t, 0)
	account := c.CreateAccount(t, c.Namespace(t), "busy")
	for name, end := range map[string]func(){
		"in order": func() { c.manager.Shutdown(t) },
		"killed":   func() { c.manager.Crash(t) },
	} {
		whole := t // the manager outlives its subtest
		t.Run(name, func(t *testing.T) {
			l := c.startLoad(t, account)
			l.awaitMore(t, freshKind, 20)
			end()
			gone := time.Now()
			l.awaitMore(t, boundKind, 40) // a second without a signer
			c.startAgain(whole)
			c.manager.AwaitReady(t)
			l.awaitMore(t, freshKind, 20)
			t.Logf("signatures were made again %v after the end", time.Since(gone).Round(time.Millisecond))
			l.end()
			l.report(t)
			l.none(t, boundKind, legacyKind, freshKind)
		})
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/testutil"
)

// TestExternalCA: the operator's own kubeconfig is all that is needed.
func TestExternalCA(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.remove(t, "ca.key")
	err := Ensure(t.Context(), n.config)
	for _, want := range []string{"the key of the cluster's CA is not here", "identity/kubeconfig", "CN=system:sa-controller-manager, no O"} {
		testutil.Require(t, err != nil && strings.Contains(err.Error(), want), "error %v, want one with %q", err, want)
	}
	rendered := testutil.Get(render(&clientcmdapi.Cluster{Server: server}))(t)
	own := bytes.ReplaceAll(rendered, []byte(pairFile), []byte("own.pem"))
	n.write(t, "identity/kubeconfig", own)
	n.ensure(t)
	testutil.Expect(t, bytes.Equal(own, n.read(t, "identity/kubeconfig")) && strings.Contains(n.said.String(), "left as it is"),
		"it is changed: %q", n.said.String())
}

// TestExchangedCA: while a CA is exchanged, ca.crt has several certificates, in any order.
func TestExchangedCA(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	old, oldKey := n.read(t, "ca.crt"), n.read(t, "ca.key")
	n.newCA(t, time.Hour)
	other := n.read(t, "ca.crt")
	n.clock.SetTime(n.clock.Now().Add(-validity))
	n.newCA(t, time.Hour)
	n.clock.SetTime(n.clock.Now().Add(validity))
	expired, expiredKey := n.read(t, "ca.crt"), n.read(t, "ca.key")
	for name, tc := range map[string]struct {
		crt  [][]byte
		key  []byte
		want string
	}{
		"First":        {crt: [][]byte{old, other}, key: oldKey},
		"Appended":     {crt: [][]byte{other, old}, key: oldKey},
		"AfterExpired": {crt: [][]byte{expired, old}, key: oldKey},
		"Third":        {crt: [][]byte{expired, other, old}, key: oldKey},
		"KeyOfExpired": {crt: [][]byte{expired, old}, key: expiredKey, want: "ca.key belongs to none of the 2 certificates in "},
		"KeyOfAnother": {crt: [][]byte{other, old}, key: expiredKey, want: "ca.key belongs to none of the 2 certificates in "},
	} {
		n.write(t, "ca.crt", slices.Concat(tc.crt...))
		n.write(t, "ca.key", tc.key)
		_ = os.RemoveAll(n.config.Dir)
		err := Ensure(t.Context(), n.config)
		testutil.Expect(t, (err == nil) == (tc.want == "") && (err == nil || strings.Contains(err.Error(), tc.want)), "%s: error %v, want %q",
			name, err, tc.want)
		if err != nil {
			continue
		}
		ca := testutil.Get(cert.ParseCertsPEM(old))(t)
		if err := n.certificate(t).CheckSignatureFrom(ca[0]); err != nil {
			t.Errorf("%s: another CA has signed: %v", name, err)
		}
	}
}

// lines keeps what was said, and may be asked while Watch runs.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return strings.Split(strings.TrimSpace(l.text.String()), "\n")
}

// TestWatch goes through the life of an identity. Nothing ends it but its context.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, said := newNode(t), &lines{}
		n.clock.SetTime(time.Now()) // of the bubble
		n.newCA(t, 10*365*24*time.Hour)
		n.from(t, server)
		n.config.Clock, n.config.Say, n.config.Validity = clock.RealClock{}, said, 24*time.Hour
		n.remove(t, "controller-manager.conf")

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			Watch(ctx, n.config)
		}()
		// step lets time pass, and wants a line that was said then, or none.
		step := func(pause time.Duration, want string) {
			t.Helper()
			time.Sleep(pause)
			synctest.Wait()
			if got := said.take(); !slices.ContainsFunc(got, func(line string) bool { return strings.Contains(line, want) }) || want == "" &&
				got[0] != "" {
				t.Errorf("after %v: %q, want %q", pause, got, want)
			}
		}
		step(0, "Error: read the API server's address")
		step(10*time.Second, "")
		n.from(t, server)
		step(5*time.Second, "client.pem is written")
		step(watchInterval, "left as it is")
		step(12*time.Hour, "")
		step(5*time.Hour, "The one before: it expires on")
		n.write(t, "identity/kubeconfig", []byte("{"))
		step(watchInterval, "Error: ")
		n.remove(t, "identity/kubeconfig")
		step(watchInterval, "kubeconfig is written")
		n.clock.SetTime(time.Now())
		key := n.read(t, "ca.key")
		n.remove(t, "ca.key")
		step(watchInterval, "left as it is")
		step(17*time.Hour, "Warning: the client certificate ends on")
		n.write(t, "ca.key", key)
		step(watchInterval, "client.pem is written")
		step(watchInterval, "left as it is")
		cancel()
		<-ended
	})
}

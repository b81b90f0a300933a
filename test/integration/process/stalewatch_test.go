// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/faultproxy"
	"sa-controller-manager/test/integration/testcluster"
)

// stalled passes watches on until the channel is closed. Then nothing comes any more,
// and nothing ends: the connection is well, and its pings are answered.
func stalled(from <-chan struct{}) faultproxy.Fault {
	return func(request *http.Request, forward http.RoundTripper) (*http.Response, error) {
		response, err := forward.RoundTrip(request)
		if err == nil {
			response.Body = &stallingBody{ReadCloser: response.Body, from: from, closed: make(chan struct{})}
		}
		return response, err
	}
}

type stallingBody struct {
	io.ReadCloser

	from   <-chan struct{}
	closed chan struct{}
	once   sync.Once
}

func (b *stallingBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.ReadCloser.Close()
}

func (b *stallingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	select {
	case <-b.from:
		<-b.closed
		return 0, io.ErrUnexpectedEOF
	default:
		return n, err
	}
}

// TestStaleWatchFailsReadiness takes four minutes, because a watch may be silent for
// three. internal/watchhealth tests the decision.
func TestStaleWatchFailsReadiness(t *testing.T) {
	await.Long(t)
	c := testcluster.New(t, devcluster.Options{})
	proxy, stall := c.Proxy(t), make(chan struct{})
	proxy.Use(&faultproxy.Rule{Match: faultproxy.On("watch", ""), Fault: stalled(stall)})
	m := c.ManageThrough(t, proxy, "--token-secrets=manual")
	namespace := c.Namespace(t)
	c.CreateAccount(t, namespace, "someone")

	// An event after the first minute shows that a watch gets bookmarks.
	select {
	case <-time.After(55 * time.Second):
	case <-t.Context().Done():
	}
	c.CreateSecret(t, testcluster.TokenSecret(namespace, "mine", "someone"))
	c.AwaitFilled(t, namespace, "mine")
	m.WaitIdle(t)
	close(stall)
	began := time.Now()
	status := func() answer { return ask(t, m.URL(), "/readyz?verbose", &rest.Config{}) }
	var last answer
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	_ = await.Poll(ctx, func(context.Context) error { // last says what was missing
		if last = status(); last.status != http.StatusServiceUnavailable {
			return errors.New(last.body)
		}
		return nil
	})
	if want := "[-]watches failed: no data received from "; last.status != http.StatusServiceUnavailable || !strings.Contains(last.body, want) {
		t.Fatalf("after %v /readyz answers %d, want 503 with %q: %s", time.Since(began), last.status, want, last.body)
	}
	if took := time.Since(began); took < 170*time.Second {
		t.Errorf("not ready after %v already, want three minutes", took)
	}
	if got := ask(t, m.URL(), "/livez", &rest.Config{}); got.status != http.StatusOK {
		t.Errorf("/livez answers %d, want 200: a restart would not repair the network", got.status)
	}

	// Once watches pass again, a new one is as good as any.
	proxy.Use()
	proxy.CutWatches(faultproxy.Any)
	testcluster.Poll(t, "await that it is ready again", func() error {
		if now := status(); now.status != http.StatusOK {
			return fmt.Errorf("%d: %s", now.status, now.body)
		}
		return nil
	})
}

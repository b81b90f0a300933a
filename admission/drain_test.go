// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"sa-controller-manager/internal/testutil"
)

func TestServerDrains(t *testing.T) {
	t.Parallel()
	const refusedDial = "closed" // by the listener
	for name, tc := range map[string]struct {
		reason  string
		call    time.Duration // how long the call takes that comes right before the end
		want    string
		stopped time.Duration // when Run returns, from the end on
	}{
		"quiet":    {reason: "the delay is waited out", want: "200 v1 uid=u-1 yes ", stopped: 5 * time.Second},
		"in work":  {reason: "the call gets its answer", call: 8 * time.Second, want: "200 v1 uid=u-1 yes ", stopped: 8 * time.Second},
		"too slow": {reason: "the timeout ends", call: 25 * time.Second, want: "EOF", stopped: 15 * time.Second},
	} {
		testutil.Bubble(t, name, func(t *testing.T) {
			first := true
			slow := mutates(func(context.Context, *Request, *Response) error {
				if first {
					first = false
					time.Sleep(tc.call)
				}
				return nil
			})
			s := start(t, func(c *ServerConfig) {
				c.Webhook = NewWebhook(WebhookConfig{Plugin: slow})
				c.DrainDelay, c.DrainTimeout = 5*time.Second, 10*time.Second
			})
			answer := make(chan string, 1)
			go func() { answer <- s.review(t) }()
			synctest.Wait()

			s.stop()
			began := time.Now()
			synctest.Wait()
			testutil.Check(t, tc.reason+": readyz at once", "503 HTTP/1.1 shutting down", s.get("/readyz"))
			time.Sleep(4 * time.Second)
			testutil.Check(t, tc.reason+": a call within the delay", "200 v1 uid=u-1 yes  (close)", s.review(t))
			time.Sleep(time.Second + time.Millisecond)
			testutil.CheckContains(t, tc.reason+": a call after the delay", refusedDial, s.review(t))
			testutil.CheckContains(t, tc.reason+": the call in work", tc.want, <-answer)
			testutil.CheckError(t, tc.reason+": the end", "", <-s.ended)
			// Shutdown looks for idle connections every half second at most.
			if took := time.Since(began); took < tc.stopped || took > tc.stopped+time.Second {
				t.Errorf("%s: stopped after %s, want %s", tc.reason, took, tc.stopped)
			}
			s.client.CloseIdleConnections()
			time.Sleep(time.Minute) // the plugin ends
		})
	}
}

// A caller that has dialed right before the end of the delay still gets its answer, and one that is
// silent is not waited for longer than newTimeout.
func TestServerDrainsNewConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, func(c *ServerConfig) { c.DrainDelay, c.DrainTimeout = 5*time.Second, 10*time.Second })
		s.client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := s.dial(ctx, network, address)
			time.Sleep(900 * time.Millisecond)
			return conn, err
		}
		s.stop()
		began := time.Now()
		time.Sleep(5*time.Second - time.Millisecond)
		silent := testutil.Get(s.listener.DialContext(t.Context()))(t)
		testutil.Check(t, "the call", "200 v1 uid=u-1 "+patched+" (close)", s.review(t))
		testutil.CheckError(t, "the end", "", <-s.ended)
		if took := time.Since(began) - 5*time.Second; took < newTimeout || took > newTimeout+100*time.Millisecond {
			t.Errorf("stopped %s after the delay, want %s", took, newTimeout)
		}
		_ = silent.Close()
	})
}

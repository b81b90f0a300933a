// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sa-controller-manager/internal/testutil"
)

// slowestPod is what docs/reliability.md promises under load, while other programs take no more of the processors'
// time than mostByOthers.
const (
	slowestPod   = 2500 * time.Millisecond
	mostByOthers = 0.2
)

// processorTime returns how long processors have worked for the whole machine, in hundredths of a second
// (proc_stat(5)), and for this program.
func processorTime(t *testing.T) (all, own time.Duration) {
	t.Helper()
	content, err := os.ReadFile("/proc/stat")
	testutil.Must(t, err)
	var user, nice, system, idle, wait, irq, softirq, steal int64
	_, err = fmt.Sscanf(string(content), "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &softirq, &steal)
	testutil.Must(t, err)
	var usage unix.Rusage
	testutil.Must(t, unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return time.Duration(user+nice+system+irq+softirq+steal) * 10 * time.Millisecond, time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// TestLargePodsUnderSlowClients creates Pods larger than freeBody while 500 clients without
// credentials send part of a body of the maximum size, and come again when they are cut.
func TestLargePodsUnderSlowClients(t *testing.T) {
	// Their handshakes alone would take all of the CPU if they came again at once.
	for name, attack := range map[string]struct{ leaveAfter, stayAway time.Duration }{
		"stalled": {time.Hour, 5 * time.Second},
		"churn":   {500 * time.Millisecond, 2 * time.Second}, // they leave before their time is over
	} {
		t.Run(name, func(t *testing.T) {
			address, trusted := serveLoopback(t)
			ctx, stop := context.WithCancel(t.Context())
			var clients sync.WaitGroup
			defer clients.Wait()
			defer stop()
			for i := range 500 {
				sends := freeBody + sharedBody/100 // a hundred of them leave no room
				if i%100 == 0 {
					sends = maxBody - 1000
				}
				clients.Go(func() {
					for ctx.Err() == nil {
						sendSlowly(ctx, address, trusted, sends, attack.leaveAfter)
						time.Sleep(attack.stayAway)
					}
				})
			}
			time.Sleep(time.Second) // all of them have come

			transport := &http.Transport{TLSClientConfig: trusted}
			defer transport.CloseIdleConnections()
			client := http.Client{Transport: transport, Timeout: 20 * time.Second}
			pod := strings.Replace(createReview("v1"), `"name":`, `"padding": "`+strings.Repeat("x", 24<<10)+`", "name":`, 1)
			pods, longest := 0, time.Duration(0)
			allBefore, ownBefore := processorTime(t)
			begun := time.Now()
			for ; time.Since(begun) < 4*time.Second; pods++ {
				sent := time.Now()
				if got, want := create(t, &client, address, pod), "200 v1 uid=u-1 "+patched; got != want {
					t.Errorf("a Pod of %d bytes: %s, want %s", len(pod), got, want)
				}
				longest = max(longest, time.Since(sent))
			}
			t.Logf("%d Pods, each answered within %s", pods, longest)
			all, own := processorTime(t)
			others := float64((all-allBefore)-(own-ownBefore)) / float64(time.Since(begun)) / float64(runtime.NumCPU())
			if longest > slowestPod && others <= mostByOthers {
				t.Errorf("a Pod was answered after %s, want %s at most; other programs took %.0f %%", longest, slowestPod, 100*others)
			}
		})
	}
}

// serveLoopback runs a server until the test ends.
func serveLoopback(t *testing.T) (address string, trusted *tls.Config) {
	t.Helper()
	certificate, roots := newCertificate(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	server := NewServer(ServerConfig{
		Listener: listener, TLS: &tls.Config{Certificates: []tls.Certificate{certificate}},
		Webhook: NewWebhook(WebhookConfig{Chain: patchEverything()}),
	})
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		testutil.Must(t, <-ended)
	})
	return listener.Addr().String(), &tls.Config{RootCAs: roots, ServerName: "localhost"}
}

var blanks = bytes.Repeat([]byte(" "), maxBody)

// sendSlowly sends the beginning of a body, and leaves after some time or when the server hangs up.
func sendSlowly(ctx context.Context, address string, trusted *tls.Config, sends int, leaveAfter time.Duration) {
	dialer := tls.Dialer{Config: trusted}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	_ = conn.SetDeadline(time.Now().Add(leaveAfter))
	fmt.Fprintf(conn, "POST /mutate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", maxBody)
	if _, err := conn.Write(blanks[:sends]); err == nil {
		_, _ = io.Copy(io.Discard, conn)
	}
}

// create returns the status and the answer in a line.
func create(t *testing.T, client *http.Client, address, review string) string {
	t.Helper()
	response, err := client.Post("https://"+address+"/mutate?timeout=30s", "application/json", strings.NewReader(review))
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", response.StatusCode, said(readAnswer(t, body)))
}

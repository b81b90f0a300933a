// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/test/measure"
)

const (
	// rate is what kube-apiserver asks under load: 20 Pods a second.
	rate = 50 * time.Millisecond
	// slowest is what ninety-nine Pods in a hundred may take at most (docs/reliability.md, "Under load"): a quarter of what
	// kube-apiserver waits for the webhook, and more than twice what is measured on two processors.
	slowest = 2500 * time.Millisecond
	// sampleLimit is for how long a process may leave the suite without an answer: nobody else can say how many goroutines
	// it has. It is twice what a Pod may take, because nothing is promised about metrics.
	sampleLimit = 2 * slowest
	// fewestStruck is how often clients of a kind have to come as far as their attack. A hundred of each come, most of them
	// several times.
	fewestStruck = 5
	// fewestSilent is more than the webhook keeps, and as many as a machine has that allows a process 1024 files.
	fewestSilent = 700
	// loadTimeout is how long all may take to be as it must be.
	loadTimeout = 30 * time.Second
)

// Load has broken clients attack the webhook of one replica of an ordinary build, while kube-apiserver goes on to ask it.
func (w *World) Load(ctx context.Context, binary devcluster.Binary) (outcome checker.Outcome, summary string, err error) {
	// As on a node of the control plane: nobody is between kube-apiserver and the webhook.
	port, err := devcluster.FreePort()
	if err != nil {
		return outcome, "", err
	}
	if err := w.deploy(ctx, binary, 1, "--webhook-bind-address=127.0.0.1", "--webhook-port="+strconv.Itoa(port)); err != nil {
		return outcome, "", err
	}
	defer func() { err = errors.Join(err, w.retire()) }()
	n := workload.NewNamespace("load-pods")
	if err := errors.Join(w.client.CreateNamespace(ctx, n.Name), w.awaitAdmitted(ctx, n.Name)); err != nil {
		return outcome, "", err
	}
	process := w.replicas[0].now().manager
	rest, err := sampleOf(ctx, process)
	if err != nil {
		return outcome, "", err
	}
	loading, stop := context.WithCancel(ctx)
	var working sync.WaitGroup
	var calls []workload.Call
	var samples int
	var most checker.Sample
	working.Go(func() { calls = w.ask(loading, n.Name) })
	working.Go(func() { samples, most = w.sample(loading, process, rest) })
	came, silent := breakOn(ctx, at("127.0.0.1", port)), flood(ctx, at("127.0.0.1", port))
	stop()
	working.Wait()
	outcome, err = w.check(ctx, scope{model: workload.Model{n.Name: n}, calls: calls, timeout: loadTimeout})
	outcome.Samples, outcome.BrokenCalls = samples, silent
	struck := 0
	for name, t := range came {
		outcome.BrokenCalls += t.tried
		struck += t.struck
		if t.wrong != "" {
			outcome.Violations = append(outcome.Violations, checker.Violated(7, "%s is answered with %q", name, t.wrong))
		}
		if t.struck == 0 || t.struck < fewestStruck && !w.Busy {
			err = errors.Join(err, fmt.Errorf("%s came as far as its attack %d times in %d, want %d at least",
				name, t.struck, t.tried, fewestStruck))
		}
	}
	if silent == 0 || silent < fewestSilent && !w.Busy {
		err = errors.Join(err, fmt.Errorf("%d connections said nothing, want %d at least", silent, fewestSilent))
	}
	if len(calls) == 0 {
		return outcome, "", errors.Join(err, errors.New("no Pod was asked for under load"))
	}
	p99 := slowestOfMost(calls)
	if p99 > slowest && !w.Busy {
		outcome.Violations = append(outcome.Violations,
			checker.Violated(5, "one Pod in a hundred took %v under load, want %v at most", p99, slowest))
	}
	summary = fmt.Sprintf("%d of %d calls of %d broken clients came as far as their attack, then %d silent connections; "+
		"%d Pods, p99 %v; at most %d goroutines, %d MiB", struck, outcome.BrokenCalls-silent, brokenClients, silent,
		len(calls), p99, most.Goroutines, most.RssAnon>>10)
	return outcome, summary, err
}

// slowestOfMost is how long ninety-nine calls in a hundred took at most.
func slowestOfMost(calls []workload.Call) time.Duration {
	var took []time.Duration
	for _, call := range calls {
		took = append(took, call.Ended.Sub(call.Begun))
	}
	slices.Sort(took)
	return took[len(took)*99/100].Round(time.Millisecond)
}

// awaitAdmitted returns once a Pod is admitted with all it is owed: kube-apiserver has to know where to ask now. Before that
// it asks replicas that are gone.
func (w *World) awaitAdmitted(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
	defer cancel()
	return await.Poll(ctx, func(ctx context.Context) error {
		call := w.askOnce(ctx, namespace, "")
		if call.Err == nil && call.Lacks != "" {
			return fmt.Errorf("a Pod lacks its %s", call.Lacks)
		}
		return call.Err
	})
}

// ask creates Pods at a steady rate. Every second one is large: its body is one of those that share a limit.
func (w *World) ask(ctx context.Context, namespace string) []workload.Call {
	var mu sync.Mutex
	var calls []workload.Call
	await.Every(ctx, rate, func(ctx context.Context, i int) {
		call := w.askOnce(ctx, namespace, strings.Repeat("x", i%2*24<<10))
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, call)
	})
	return calls
}

// askOnce creates a Pod of which nothing is kept.
func (w *World) askOnce(ctx context.Context, namespace, padding string) workload.Call {
	call := workload.Call{Namespace: namespace, Name: "dry-run"}
	pod := workload.NewPod(call.Name, "")
	pod.Annotations = map[string]string{"padding": padding}
	w.client.CreatePod(ctx, &call, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return call
}

// sample holds the process to the limits each second until ctx ends.
func (w *World) sample(ctx context.Context, process *devcluster.Manager, rest checker.Sample) (samples int, most checker.Sample) {
	for await.Sleep(ctx, time.Second) {
		now, err := sampleOf(context.WithoutCancel(ctx), process)
		if err != nil {
			if !w.Busy {
				w.report(checker.Violated(8, "goroutines are unknown for %v: %v", sampleLimit, err))
			}
			continue
		}
		samples++
		most.Goroutines, most.RssAnon = max(most.Goroutines, now.Goroutines), max(most.RssAnon, now.RssAnon)
		if what := now.Exceeds(rest); what != "" {
			w.report(checker.Violated(8, "%s", what))
		}
	}
	return samples, most
}

func sampleOf(ctx context.Context, process *devcluster.Manager) (checker.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, sampleLimit)
	defer cancel()
	memory, err := measure.MemoryOf(process.PID())
	if err != nil {
		return checker.Sample{}, err
	}
	metrics, err := process.Metrics(ctx)
	if err != nil {
		return checker.Sample{}, err
	}
	return checker.Sample{
		Goroutines: int(metrics.Sum("go_goroutines", nil)), InFlight: int(metrics.Sum("sacm_webhook_requests_in_flight", nil)),
		RssAnon: memory.Anon,
	}, nil
}

const (
	// brokenClients come to the webhook at the same time, for brokenFor.
	brokenClients = 500
	brokenFor     = 6 * time.Second
	// Then for floodFor as many connections as the machine has, floodSize at most, say nothing.
	floodFor  = 3 * time.Second
	floodSize = 10_000
	// handshake is how a record of TLS begins that is part of one (RFC 8446, section 5.1).
	handshake = 0x16
	// dripped is how many bytes make a slow client.
	dripped = 10
)

// brokenClient sends some bytes at once and others one by one, ten a second.
type brokenClient struct {
	name         string
	plain        bool // without TLS
	sends, drips string
}

func brokenKinds() []brokenClient {
	const length = 8 << 20
	head := fmt.Sprintf("POST /mutate HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", length)
	return []brokenClient{
		// A whole record: the rest of half a one would be waited for.
		{name: "garbage for TLS", plain: true, sends: strings.Repeat(string([]byte{handshake, 0x03, 0xff}), 2000)},
		{name: "slow header", drips: head},
		{name: "slow body", sends: head, drips: strings.Repeat("{", 1000)},
		// It holds all that there is for large bodies (docs/reliability.md, "Limits").
		{name: "large body that stalls", sends: head + strings.Repeat(" ", length-1000)},
	}
}

// visit returns once the server has had enough, or ctx ends. struck reports that the client came as far as its attack, and
// answer is how what the server said begins.
func (b brokenClient) visit(ctx context.Context, address string) (struck bool, answer []byte) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false, nil
	}
	end := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer end()
	defer func() { _ = conn.Close() }() // the server may have done so
	if !b.plain {
		secured := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // G402: what it sends is garbage
		if err := secured.HandshakeContext(ctx); err != nil {
			return false, nil
		}
		conn = secured
	}
	heard := make(chan []byte, 1)
	go func() {
		begin := make([]byte, len("HTTP/1.1 4"))
		n, _ := io.ReadFull(conn, begin) // less is an answer too
		heard <- begin[:n]
	}()
	_, err = io.WriteString(conn, b.sends)
	sent := 0
	for ; err == nil && sent < len(b.drips) && await.Sleep(ctx, 100*time.Millisecond); sent++ {
		_, err = io.WriteString(conn, b.drips[sent:sent+1])
	}
	answer = <-heard
	if b.drips != "" {
		return sent > dripped, answer
	}
	return ctx.Err() == nil, answer
}

// tally is what came of all visits of a kind.
type tally struct {
	tried, struck int
	wrong         string // what was answered to one of them, "" if all is well
}

func (t *tally) note(struck bool, answer []byte) {
	t.tried++
	if struck {
		t.struck++
	}
	if status, spoken := bytes.CutPrefix(answer, []byte("HTTP/1.1 ")); spoken && !bytes.HasPrefix(status, []byte("4")) ||
		len(answer) > 0 && answer[0] == handshake {
		t.wrong = string(answer)
	}
}

// breakOn has broken clients come again and again, and returns what came of each kind, by its name.
func breakOn(ctx context.Context, address string) map[string]*tally {
	ctx, cancel := context.WithTimeout(ctx, brokenFor)
	defer cancel()
	kinds, came := brokenKinds(), map[string]*tally{}
	for _, kind := range kinds {
		came[kind.name] = &tally{}
	}
	var mu sync.Mutex
	var coming sync.WaitGroup
	for i := range brokenClients {
		kind := kinds[i%len(kinds)]
		coming.Go(func() {
			for ctx.Err() == nil {
				struck, answer := kind.visit(ctx, address)
				mu.Lock()
				came[kind.name].note(struck, answer)
				mu.Unlock()
				await.Sleep(ctx, time.Second)
			}
		})
	}
	coming.Wait()
	return came
}

// flood opens connections that say nothing and returns how many there were. One that finds the server's queue full tries again.
func flood(ctx context.Context, address string) (open int) {
	ctx, cancel := context.WithTimeout(ctx, floodFor)
	defer cancel()
	most := floodSize
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err == nil {
		most = int(min(floodSize, limit.Cur/4*3))
	}
	dialer := net.Dialer{Timeout: time.Second}
	for open < most && ctx.Err() == nil {
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err != nil {
			await.Sleep(ctx, 5*time.Millisecond)
			continue
		}
		open++
		context.AfterFunc(ctx, func() { _ = conn.Close() })
	}
	<-ctx.Done()
	return open
}

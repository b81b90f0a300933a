// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/internal/serving"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"
)

// keysInMemory is a signing.Store of one key.
type keysInMemory struct{ ring *signing.Ring }

func (s keysInMemory) Load() *signing.Ring { return s.ring }

func (s keysInMemory) Watch(ctx context.Context, _ func(*signing.Ring), _ func(error)) { <-ctx.Done() }

func (s keysInMemory) Status() signing.StoreStatus { return signing.StoreStatus{} }

// TestTwoManagersInOneProcess wants the whole table of the core, without a file, a port or a socket.
func TestTwoManagersInOneProcess(t *testing.T) {
	t.Parallel()
	for range 2 {
		o := parse(t, "--webhook-port=0", "--secure-port=0")
		config := &rest.Config{Host: "https://apiserver", Transport: roundTrip(fail)}
		m := testutil.Get(New(t.Context(), o, config, metrics.NewKubeRegistry(), Extras{
			OpenKeys: func(context.Context, Host) (signing.Store, error) {
				return keysInMemory{signing.KeyFileRing(testkeys.Parse(testkeys.P256()))}, nil
			},
		}))(t)
		var names []string
		for _, part := range m.parts {
			names = append(names, part.Name)
		}
		testutil.Check(t, "parts", []string{
			"event-recorder", "permissions", "caches", "watches", "key-store", "signing-key", options.ServiceAccountController,
			options.LegacyServiceAccountTokenCleaner, options.ServiceAccountTokenController, "files", "secure-port", "secure-port-lookup",
		}, names)
		testutil.Start(t, m.Run)
	}
}

func TestMain(m *testing.M) {
	// The second handler slows errors down by the time since the last one, which was in another
	// synctest bubble and may be decades ahead.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] //nolint:reassign // there is no other way
	testutil.Main(m)
}

// TestSetGCPercent changes a setting of the whole process, so it runs alone.
func TestSetGCPercent(t *testing.T) {
	const before = 123
	for name, tc := range map[string]struct {
		gogc, limit string
		want        int
	}{"ByDefault": {want: heapGrowth}, "WithGOGC": {gogc: "100", want: before}, "WithGOMEMLIMIT": {limit: "64MiB", want: before}} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOGC", tc.gogc)
			t.Setenv("GOMEMLIMIT", tc.limit)
			previous := debug.SetGCPercent(before)
			setGCPercent()
			testutil.Check(t, "percent", tc.want, debug.SetGCPercent(previous))
		})
	}
}

func TestStopTakesLessThanTenSeconds(t *testing.T) {
	t.Parallel()
	leading := max(options.New().Webhook.DrainDelay+callsTimeout, reconcile.DrainTimeout)
	all := leading + max(reconcile.WatchStopTimeout, serving.DrainTimeout)
	testutil.Expect(t, all < 10*time.Second, "a stop takes %s", all)
}

// TestWhileEarly: early parts stop last, and the end of one is the end of the process.
func TestWhileEarly(t *testing.T) {
	t.Parallel()
	var happened []string
	boom := errors.New("boom")
	until := func(ctx context.Context, what string, err error) error {
		<-ctx.Done()
		happened = append(happened, what)
		return err
	}
	m := &Manager{parts: []Part{{Phase: Early, Run: func(ctx context.Context) error { return until(ctx, "early", nil) }}}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := m.whileEarly(ctx, func(ctx context.Context) error { return until(ctx, "work", boom) })
	testutil.Expect(t, errors.Is(err, boom), "error %v, want that of the work", err)
	m.parts[0].Run = func(context.Context) error { return boom }
	err = m.whileEarly(t.Context(), func(ctx context.Context) error { return until(ctx, "ended", nil) })
	testutil.Expect(t, errors.Is(err, boom), "error %v, want that of the part", err)
	testutil.Check(t, "order", []string{"work", "early", "ended"}, happened)
}

func TestNewClients(t *testing.T) {
	t.Parallel()
	restClient := func(client kubernetes.Interface) *rest.RESTClient {
		return client.CoordinationV1().RESTClient().(*rest.RESTClient)
	}
	config := &rest.Config{Host: "https://apiserver.example.com", QPS: -1, Burst: 30}
	clients := testutil.Get(newClients(config, 10*time.Second))(t)
	testutil.Check(t, "timeout of the caller's config", time.Duration(0), config.Timeout)
	main, election := restClient(clients.Client), restClient(clients.Election)
	testutil.Expect(t, main.GetRateLimiter() == nil && election.GetRateLimiter() == nil,
		"requests are limited although --kube-api-qps is -1")
	testutil.Check(t, "timeout of requests, and with them of every watch", time.Duration(0), main.Client.Timeout)
	testutil.Check(t, "a renewal takes half of the deadline, so that there is a second try", 5*time.Second, election.Client.Timeout)

	limited := testutil.Get(newClients(&rest.Config{Host: "https://apiserver.example.com", QPS: 7, Burst: 30}, 10*time.Second))(t)
	testutil.Check(t, "requests a second", float32(7), restClient(limited.Client).GetRateLimiter().QPS())
	testutil.Expect(t, restClient(limited.Client).GetRateLimiter() != restClient(limited.Election).GetRateLimiter(),
		"leader election waits behind other requests")
}

func TestNewClientsRefuses(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]*rest.Config{
		"Address": {Host: "https://[::1"},
		"CA": {
			Host: "https://apiserver.example.com", TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(t.TempDir(), "missing")},
		},
	} {
		if _, err := newClients(config, time.Second); err == nil || !strings.HasPrefix(err.Error(), "build the API client: ") {
			t.Errorf("%s: got error %v, want one that says what could not be built", name, err)
		}
	}
}

func TestResync(t *testing.T) {
	t.Parallel()
	drawn := map[time.Duration]bool{}
	for range 1000 {
		period := resync(&options.Generic{MinResyncPeriod: time.Hour})
		drawn[period] = true
		testutil.Require(t, period >= time.Hour && period < 2*time.Hour, "drew %v, want at least 1h and less than 2h", period)
	}
	testutil.Expect(t, len(drawn) >= 900, "1000 periods are %d different ones: many processes would resync in step", len(drawn))
	testutil.Check(t, "no resync", time.Duration(0), resync(&options.Generic{}))
}

// TestFindingsOfAPart: readiness fails for what is meant to fail it, names everything else, and says since when.
func TestFindingsOfAPart(t *testing.T) {
	testutil.InBubble(t, func(t *testing.T) {
		var now check.Result
		var failed error
		part := Part{Findings: func() (check.Result, error) { return now, failed }}
		probe := part.probe()
		began := time.Now().UTC().Format(time.RFC3339)
		bad := check.Finding{Code: "bad", Message: "it is bad", Cost: "Pods are refused", Remedy: "repair{flags}", Unready: true}
		odd := check.Finding{Code: "odd", Message: "it is odd", Why: "seen"}
		for _, step := range []struct {
			reason       string
			result       check.Result
			err          error
			detail, want string
		}{
			{"nothing", check.Result{Note: "registered"}, nil, "registered", ""},
			{"a finding that passes", check.Result{Note: "n", Findings: []check.Finding{odd}}, nil,
				"n; finding odd: it is odd: seen; since SINCE", ""},
			{"both, and the first is older", check.Result{Findings: []check.Finding{odd, bad}}, nil,
				"finding odd: it is odd: seen; since SINCE", "bad: it is bad, so that Pods are refused; since LATER; repair"},
			{"the same with another error", check.Result{Findings: []check.Finding{{Code: "odd", Message: "it is odder"}}}, nil,
				"finding odd: it is odder; since SINCE", ""},
			{"nothing is known", check.Result{}, errors.New("not asked yet"), "", "not asked yet"},
		} {
			now, failed = step.result, step.err
			detail, err := probe()
			replace := strings.NewReplacer("SINCE", began, "LATER", time.Now().UTC().Format(time.RFC3339))
			testutil.Check(t, step.reason+": detail", replace.Replace(step.detail), detail)
			testutil.CheckError(t, step.reason, replace.Replace(step.want), err)
			time.Sleep(time.Minute)
			if step.reason == "nothing" {
				began = time.Now().UTC().Format(time.RFC3339)
			}
		}
	})
}

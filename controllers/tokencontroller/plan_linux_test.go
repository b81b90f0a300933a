// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokencontroller

import (
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/testutil"
)

// worstAccount is an account with n references that token controllers seem to have written, and n token Secrets, each of which
// replaces the next: what a user can make so that a sync takes a worker from everybody.
func worstAccount(n int) (*corev1.ServiceAccount, []*tokensecrets.TokenSecret) {
	app, template := account(), tokensecrets.Observe(tokenSecret("", boundTo(testUID), autoCreated))
	written := strings.Builder{}
	written.WriteString(`{"f:secrets":{".":{}`)
	listed(meta.FieldManager, "gone")(app)
	secrets := make([]*tokensecrets.TokenSecret, n)
	for i := range n {
		secret, next := *template, fmt.Sprintf("app-token-%05d", (i+1)%n)
		secret.Name = fmt.Sprintf("app-token-%05d", i)
		secret.UID = types.UID("uid-" + secret.Name)
		secret.Predecessor = tokensecrets.Predecessor{Name: next, UID: types.UID("uid-" + next)}
		secrets[i] = &secret
		app.Secrets = append(app.Secrets, corev1.ObjectReference{Name: "gone-" + secret.Name})
		written.WriteString(`,"k:{\"name\":\"gone-` + secret.Name + `\"}":{}`)
	}
	app.ManagedFields[0].FieldsV1.SetRawBytes([]byte(written.String() + "}}"))
	return app, secrets
}

// TestPlansAreLinear: twice as much costs 2.5 times the reads and allocations at most. Comparisons of each with each are not counted, but
// those of 20,000 would take the CPU for ten seconds and more, and this takes a tenth of one.
func TestPlansAreLinear(t *testing.T) {
	w := newWorld(t)
	w.Auto = true
	counting := &countingIndexer{Indexer: w.secretInformer.GetIndexer()}
	w.secrets = tokensecrets.ListerOf(counting)
	plans := func(n int) func() {
		app, secrets := worstAccount(n)
		return func() {
			satisfied, adopt := planAccount(app, secrets)
			testutil.Require(t, !satisfied && adopt == nil, "it is planned otherwise")
			gone, ask := w.dangling(app, nil)
			testutil.Require(t, len(gone)+len(ask) == n, "%d and %d references", len(gone), len(ask))
		}
	}
	work := func(n int) float64 {
		run := plans(n)
		counting.reads = 0
		allocations := testing.AllocsPerRun(1, run) // after a first run
		return allocations + float64(counting.reads)/2
	}
	once, twice := work(1000), work(2000)
	testutil.Expect(t, once >= 1000 && twice <= 2.5*once, "%v reads and allocations, and %v for twice as much", once, twice)

	run := plans(20000)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		var usage syscall.Rusage
		testutil.Must(t, syscall.Getrusage(syscall.RUSAGE_THREAD, &usage))
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	before := used()
	run()
	took := used() - before
	testutil.Expect(t, took <= 3*time.Second, "20,000 Secrets take %v of CPU time", took)
}

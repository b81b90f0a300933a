// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serviceaccount_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"
)

// TestLargestCalls has what any one call may cost, whatever it sends: memory with all garbage, and time.
func TestLargestCalls(t *testing.T) {
	const most, longest = 64 << 20, time.Second
	list := func(element string, n int) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
	}
	// As many lists of that field as there may be containers, with all parts that an object may have.
	fill := func(field, element string, parts int) string {
		return list(`{"`+field+`":`+list(element, (400_000/1000-8)/parts)+"}", 1000)
	}
	containers := func(lists string) string { return `{"spec":{"containers":` + lists + "}}" }
	webhook := newWebhook(t)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for name, tc := range map[string]struct {
		object string
		admits bool
	}{
		"EmptyContainers":    {object: containers(list("{}", 8<<20/3))},
		"TooManyContainers":  {object: containers(list("{}", 1001))},
		"Containers":         {object: containers(list("{}", 1000)), admits: true},
		"ContainersOfKinds":  {object: `{"spec":{"containers":` + list("{}", 10_000) + `,"initContainers":` + list("{}", 10_000) + "}}"},
		"EmptyVolumes":       {object: `{"spec":{"volumes":` + list("{}", 10_000) + "}}", admits: true},
		"VolumeMounts":       {object: containers(fill("volumeMounts", "{}", 2)), admits: true},
		"Environment":        {object: containers(fill("env", `{"valueFrom":{"secretKeyRef":{}}}`, 8)), admits: true},
		"EnvironmentSources": {object: containers(fill("envFrom", `{"secretRef":{}}`, 5)), admits: true},
		"Annotations": {
			object: `{"metadata":{"annotations":{"a":""` + func() string {
				var b strings.Builder
				for i := range 9_999 {
					fmt.Fprintf(&b, `,"%d":""`, i)
				}
				return b.String()
			}() + "}}}", admits: true,
		},
		"ManyAnnotations": {object: `{"metadata":{"annotations":{"a":""` + strings.Repeat(`,"b":""`, 500_000) + "}}}"},
		"LongString":      {object: `{"metadata":{"annotations":{"a":"` + strings.Repeat("x", 18<<20) + `"}}}`, admits: true},
		"Escaped":         {object: `{"metadata":{"annotations":{"a":"` + strings.Repeat(`\u003c`, 3<<20) + `"}}}`, admits: true},
		"Nested":          {object: strings.Repeat("[", 8<<20)},
		"Unread":          {object: `{"spec":{"args":` + list(list(`""`, 9_000), 40) + "}}", admits: true},
	} {
		review := strings.Replace(string(review), `"object":{`, `"dryRun":false,"object":`+tc.object+`,"options":{"x":{`, 1)
		review, _, _ = strings.Cut(review, `,"options":`)
		review += "}}"
		for _, path := range []string{"/mutate", "/validate"} {
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			request := httptest.NewRequest(http.MethodPost, "http://webhook"+path+"?timeout=10s", strings.NewReader(review))
			request.Header.Set("Content-Type", "application/json")
			recorder := httptest.NewRecorder()
			start := processorTime(t)
			webhook.ServeHTTP(recorder, request)
			took := processorTime(t) - start
			runtime.ReadMemStats(&after)
			taken := after.TotalAlloc - before.TotalAlloc
			t.Logf("%s %s: %d KiB sent, %d KiB taken, %s, %d KiB answered, %.200s",
				name, path, len(review)>>10, taken>>10, took, recorder.Body.Len()>>10, recorder.Body)
			if taken > most || took > longest {
				t.Errorf("%s %s took %d MiB and %s, want %d MiB and %s at most", name, path, taken>>20, took, most>>20, longest)
			}
			if admitted := bytes.Contains(recorder.Body.Bytes(), []byte(`"allowed":true`)); path == "/mutate" && admitted != tc.admits {
				t.Errorf("%s: admitted: %t, want %t: %.300s", name, admitted, tc.admits, recorder.Body)
			}
		}
	}
}

// processorTime is that of this process: other ones may be busy.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	testutil.Must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

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

	"sa-controller-manager/admission/serviceaccount"
	"sa-controller-manager/internal/testutil"
)

// TestLargestCalls has what any one call may cost, whatever it sends: memory with all garbage, and time.
func TestLargestCalls(t *testing.T) {
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
			recorder := measure(t, name, webhook, path, review)
			if admitted := bytes.Contains(recorder.Body.Bytes(), []byte(`"allowed":true`)); path == "/mutate" && admitted != tc.admits {
				t.Errorf("%s: admitted: %t, want %t: %.300s", name, admitted, tc.admits, recorder.Body)
			}
		}
	}
}

// TestLongTexts: nothing that a caller writes is repeated in the answer as often as it likes, whatever field it is in.
func TestLongTexts(t *testing.T) {
	const (
		pod = `{"request":{"uid":"u-1","kind":{"version":"v1","kind":"Pod"},"resource":{"version":"v1","resource":"pods"},"name":"",` +
			`"namespace":"web","operation":"CREATE","dryRun":true,"object":{"metadata":{"name":""},"spec":{}}},`
		begin, end = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1",`, `"x":0}`
	)
	review := func(part, with string) string { return begin + strings.Replace(pod, part, with, 1)[1:] + end }
	metadata := func(long string) string { return review(`"metadata":{"name":""}`, `"metadata":{`+long+`}`) }
	spec := func(long string) string { return review(`"spec":{}`, `"spec":{`+long+`}`) }
	of := func(account, review string) string {
		return strings.Replace(review, `"spec":{}`, `"spec":{"serviceAccountName":"`+account+`"}`, 1)
	}
	// A third of the largest body, because the race detector takes its time with each byte. Escaped or repeated once
	// more than today it is above the bound.
	long := strings.Repeat("<", 6<<20)
	containers := strings.TrimSuffix(strings.Repeat("{},", 1000), ",")
	reference := `{"name":"` + long + `"}`
	projected, secret := serviceaccount.DefaultConfig(), serviceaccount.DefaultConfig()
	projected.LimitSecretReferences, secret.Mode = true, serviceaccount.Secret
	for name, tc := range map[string]struct {
		review string
		mode   serviceaccount.Config
		code   string // of the answer to /mutate
	}{
		"UID":           {review: review("u-1", long), code: `"code":400`},
		"UIDOfNoReview": {review: strings.Replace(review("u-1", long), "AdmissionReview", "Pod", 1), code: `"code":400`},
		"UIDOfBroken":   {review: strings.TrimSuffix(review("u-1", long), "}"), code: `"code":400`},
		"Name":          {review: review(`"name":""`, `"name":"`+long+`"`), code: `"code":400`},
		"Namespace":     {review: review("web", long), code: `"code":400`},
		"Resource":      {review: review(`"resource":"pods"`, `"resource":"`+long+`"`), code: `"code":400`},
		"Group":         {review: review(`"resource":"pods"`, `"resource":"pods","group":"`+long+`"`), code: `"code":400`},
		"Operation":     {review: review("CREATE", long), code: `"code":400`},
		"Kind":          {review: strings.Replace(review("", ""), "AdmissionReview", long, 1), code: `"code":400`},
		"Probe":         {review: metadata(`"annotations":{"sa-controller-manager/probe":"` + long + `"}`), code: `"allowed":true`},
		"LargeProbe": {
			review: metadata(`"annotations":{"sa-controller-manager/probe":"x","y":"` + long + `"}`), code: `"allowed":true`,
		},
		"ProbeOfUnknown": {review: spec(`"sa-controller-manager/probe":"x","serviceAccountName":"` + long + `"`), code: `"code":403`},
		"ObjectName":     {review: of("a", metadata(`"name":"`+long+`"`)), code: `"code":403`},
		"GenerateName":   {review: of("a", metadata(`"generateName":"`+long+`"`)), code: `"code":403`},
		"Account":        {review: spec(`"serviceAccountName":"` + long + `"`), code: `"code":403`},
		"AccountAlias":   {review: spec(`"serviceAccount":"` + long + `"`), code: `"code":403`},
		"TokenVolume": {
			review: spec(`"volumes":[{"name":"kube-api-access-` + long + `"}],"containers":[` + containers + `]`), code: `"code":400`,
		},
		"SecretVolume": {
			review: spec(`"volumes":[{"name":"` + long + `","secret":{"secretName":"token"}}],"containers":[` + containers + `]`),
			mode:   secret, code: `"code":400`,
		},
		"Secret":      {review: spec(`"volumes":[{"secret":{"secretName":"` + long + `"}}]`), code: `"code":403`},
		"PullSecret":  {review: spec(`"imagePullSecrets":[` + reference + `]`), code: `"code":403`},
		"Environment": {review: spec(`"containers":[{"envFrom":[{"secretRef":` + reference + `}]}]`), code: `"code":403`},
		"Variable": {
			review: spec(`"containers":[{"env":[{"name":"` + long + `","valueFrom":{"secretKeyRef":{"name":"a"}}}]}]`), code: `"code":403`,
		},
		"Container": {
			review: spec(`"containers":[{"name":"` + long + `","envFrom":[{"secretRef":{"name":"a"}}]}]`), code: `"code":403`,
		},
		"KeyOfWrongType": {review: metadata(`"annotations":{"` + long + `":1}`), code: `"code":413`},
		"KeyOfBroken":    {review: strings.TrimSuffix(metadata(`"annotations":{"`+long+`":1}`), "0}") + "z", code: `"code":413`},
		"KeyCut":         {review: review(`"spec":{}`, `"spec":{"`+long)[:6<<20], code: `"code":400`},
		"KeyOutside":     {review: strings.Replace(metadata(""), `"object":`, `"`+long+`":{"a":z},"object":`, 1), code: `"code":413`},
		"KeyBroken":      {review: strings.Replace(metadata(""), `"object":`, `"object":{"`+long+`":{"a":z}},"o":`, 1), code: `"code":413`},
		"ObjectKind":     {review: metadata(`"x":1},"kind":"` + long + `","y":{"z":1`), code: `"code":400`},
	} {
		if tc.mode.Mode == "" {
			tc.mode = projected
		}
		t.Run(name, func(t *testing.T) {
			webhook := newWebhookOf(t, tc.mode)
			for _, path := range []string{"/mutate", "/validate"} {
				answer := measure(t, name, webhook, path, tc.review).Body
				testutil.Expect(t, answer.Len() <= 1<<20, "%s: the answer has %d KiB", path, answer.Len()>>10)
				testutil.Expect(t, path != "/mutate" || bytes.Contains(answer.Bytes(), []byte(tc.code)), "want %s: %.300s", tc.code, answer)
			}
		})
	}
}

// measure has webhook answer, and checks what that costs.
func measure(t *testing.T, name string, webhook http.Handler, path, review string) *httptest.ResponseRecorder {
	t.Helper()
	const most, longest = 64 << 20, slowdown * time.Second
	debug.FreeOSMemory()
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
	testutil.Expect(t, taken <= most && took <= longest, "%s %s took %d MiB and %s, want %d MiB and %s at most", name, path, taken>>20,
		took,
		most>>20, longest)
	return recorder
}

// processorTime is that of this process: other ones may be busy.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	testutil.Must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

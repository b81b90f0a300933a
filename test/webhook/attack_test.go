// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/measure"
)

// attackReview is a review of a dry run in a namespace that does not exist.
func attackReview(object string) []byte {
	return []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u",` +
		`"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},` +
		`"namespace":"nowhere","operation":"CREATE","dryRun":true,"object":` + object + `}}`)
}

// padded is a Pod of that size.
func padded(size int) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		for at := 0; at < size; at += 200_000 {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "kubernetes.io/padding-"+strconv.Itoa(at),
				strings.Repeat("x", min(size-at, 200_000)))
		}
	}
}

// large is a Pod whose review is above what is free for every call.
func large(pod *corev1.Pod) {
	for i := range 600 {
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env,
			corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", i), Value: strings.Repeat("x", 60)})
	}
}

func list(element string, n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
}

// attack does one thing again and again until ctx ends, on as many goroutines.
type attack struct {
	clients int
	once    func(ctx context.Context)
}

// TestAttacks has the attacks that docs/reliability.md sums up: the attackers reach the port, or are users of
// kube-apiserver. It counts the good Pods that are refused meanwhile.
func TestAttacks(t *testing.T) {
	await.Long(t)
	c := controlPlane(t)
	m := c.manage(t)
	m.faulty = true
	namespace, tenant := c.namespace(t), c.namespace(t)
	refused, err := c.burst(t, namespace, 50)
	testutil.Require(t, refused <= 0, "%v", err)
	// A namespace whose account default does not come back.
	c.noAccounts(t, tenant)
	testutil.Must(t, c.client.CoreV1().ServiceAccounts(tenant).Delete(t.Context(), "default", metav1.DeleteOptions{}))

	url := "https://127.0.0.1:" + strconv.Itoa(m.port) + "/mutate?timeout=10s"
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, MaxIdleConnsPerHost: 50}
	defer transport.CloseIdleConnections()
	post := func(body []byte) func(context.Context) {
		return func(ctx context.Context) {
			request := testutil.Get(http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body)))(t)
			request.Header.Set("Content-Type", "application/json")
			if response, err := transport.RoundTrip(request); err == nil {
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
		}
	}
	asTenant := c.Config()
	asTenant.Impersonate = rest.ImpersonationConfig{UserName: "tenant", Groups: []string{"system:masters"}}
	tenants := testutil.Get(kubernetes.NewForConfig(asTenant))(t)
	for _, tc := range []struct {
		name string
		attack
		refusesLarge bool
	}{
		{"8 MiB of empty containers", attack{4, post(attackReview(`{"spec":{"containers":` + list("{}", 8<<20/3) + `}}`))}, false},
		{"1,000 containers with 190 mounts each", attack{4, post(attackReview(
			`{"spec":{"containers":` + list(`{"volumeMounts":`+list("{}", 190)+`}`, 1000) + `}}`))}, true},
		{"complete bodies of 4.2 MiB", attack{4, post(attackReview(
			`{"metadata":{"annotations":{"a":"` + strings.Repeat("x", 4_400_000) + `"}},"spec":{}}`))}, true},
		{"bodies of 16 MiB that stop", attack{8, func(ctx context.Context) { slowBody(ctx, m.port, 16<<20, 16<<20-1024) }}, true},
		{"bodies of 2 KiB that stop", attack{300, func(ctx context.Context) { slowBody(ctx, m.port, 2<<10, 200) }}, false},
		{"garbage for TLS", attack{100, func(ctx context.Context) { plain(ctx, m.port, strings.Repeat("\x16\x03\xff", 2000)) }}, false},
		{"slow headers", attack{300, func(ctx context.Context) { slowHead(ctx, m.port) }}, false},
		{"connections that say nothing", attack{3000, func(ctx context.Context) { plain(ctx, m.port, "") }}, false},
		{"a tenant's dry runs of 240 KiB", attack{12, func(ctx context.Context) {
			_, _ = tenants.CoreV1().Pods(tenant).Create(ctx, newPod(padded(180_000), large),
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		}}, false},
	} {
		t.Run(tc.name, func(t *testing.T) { c.underAttack(t, m, namespace, tc.attack, tc.refusesLarge) })
	}
	before := m.metric(t, "sacm_webhook_connections_evicted_total", nil)
	for _, pods := range []int{400, 800} {
		refused, err := c.burst(t, namespace, pods)
		evicted := m.metric(t, "sacm_webhook_connections_evicted_total", nil) - before
		t.Logf("%d Pods at once by an exempt user: %d refused, %v; %g connections evicted", pods, refused, err, evicted)
		testutil.Expect(t, evicted <= 0, "%g of kube-apiserver's own connections were evicted", evicted)
	}
}

// underAttack creates small and large Pods while the attack goes on.
func (c *cluster) underAttack(t *testing.T, m *manager, namespace string, a attack, refusesLarge bool) {
	t.Helper()
	rest := testutil.Get(measure.MemoryOf(m.PID()))(t)
	cpu := testutil.Get(measure.CPU(m.PID()))(t)
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	var running sync.WaitGroup
	calls := make([]int, a.clients)
	for i := range a.clients {
		running.Go(func() {
			for ; ctx.Err() == nil; calls[i]++ {
				a.once(ctx)
			}
		})
	}
	most := 0
	running.Go(func() {
		for ctx.Err() == nil {
			if now, err := measure.MemoryOf(m.PID()); err == nil {
				most = max(most, now.Anon)
			}
			await.Sleep(ctx, 50*time.Millisecond)
		}
	})
	var refused, created [2]int
	var took []time.Duration
	for ctx.Err() == nil {
		for kind, pod := range []*corev1.Pod{newPod(), newPod(large)} {
			begun := time.Now()
			_, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
			if created[kind]++; err != nil {
				refused[kind]++
			}
			if kind == 0 {
				took = append(took, time.Since(begun))
			}
		}
	}
	running.Wait()
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	now := testutil.Get(measure.CPU(m.PID()))(t)
	sum := 0
	for _, n := range calls {
		sum += n
	}
	t.Logf("%d calls; %s of CPU in 20 s; RssAnon %d MiB, %d MiB at rest; refused: %d of %d small Pods, %d of %d large ones; p99 of "+
		"the small ones %s",
		sum, (now - cpu).Round(time.Millisecond), most>>10, rest.Anon>>10, refused[0], created[0], refused[1], created[1], p99)
	testutil.Expect(t, refused[0] <= 0 && p99 <= 2500*time.Millisecond,
		"%d small Pods were refused, 99 of 100 took %s at most; want none, and 2.5s", refused[0], p99)
	goroutines := m.metric(t, "go_goroutines", nil)
	testutil.Expect(t, goroutines <= 350+2*(1328+1328/4), "%g goroutines", goroutines)
	testutil.Expect(t, refused[1] <= 0 || refusesLarge, "large Pods were refused")
	testutil.Expect(t, most <= rest.Anon+128<<10, "RssAnon has grown by %d MiB", (most-rest.Anon)>>10)
}

// slowBody begins a review of that size and sends no more than a part of it, at once.
func slowBody(ctx context.Context, port, size, sent int) {
	part := slices.Concat(attackReview("{")[:190], bytes.Repeat([]byte(" "), sent-190))
	visit(ctx, &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}, port, func(conn net.Conn) {
		fmt.Fprintf(conn, "POST /mutate?timeout=10s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			size, part)
	})
}

// slowHead sends a header of ten bytes a second.
func slowHead(ctx context.Context, port int) {
	visit(ctx, &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}, port, func(conn net.Conn) {
		_, err := io.WriteString(conn, "POST /mutate HTTP/1.1\r\nHost: ")
		for err == nil && await.Sleep(ctx, 100*time.Millisecond) {
			_, err = io.WriteString(conn, "h")
		}
	})
}

// plain says that at once, without TLS, and nothing after it.
func plain(ctx context.Context, port int, words string) {
	visit(ctx, &net.Dialer{}, port, func(conn net.Conn) { _, _ = io.WriteString(conn, words) })
}

// visit returns once the server has had enough.
func visit(ctx context.Context, dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}, port int, speak func(net.Conn)) {
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	speak(conn)
	_, _ = io.Copy(io.Discard, conn) // until it is cut off
}

// refusedPods are further oddPods: account names that cannot exist, mirror pods with every kind of reference, limits that
// are broken in several places, of which the first is named, and kinds of volumes.
func refusedPods() map[string]odd {
	const (
		mirror  = `"annotations":{"kubernetes.io/config.mirror":"h"}`
		onNode  = oneContainer + `,"nodeName":"n"`
		secrets = `"env":[{"name":"A","valueFrom":{"secretKeyRef":{"name":"e","key":"k"}}}],"envFrom":[{"secretRef":{"name":"f"}}]`
		iscsi   = `{"name":"v","iscsi":{"targetPortal":"1.2.3.4","iqn":"iqn.2001-04.com.example:x","lun":0,"secretRef":{"name":"s"}}}`
	)
	projected := func(source string) string { return `{"name":"v","projected":{"sources":[` + source + `]}}` }
	volumes := func(list string) string { return oneContainer + `,"volumes":[` + list + `]` }
	pods := map[string]odd{
		"account with a slash":    {spec: oneContainer + `,"serviceAccountName":"a/b"`},
		"account with a percent":  {spec: oneContainer + `,"serviceAccountName":"a%b"`},
		"account of a dot":        {spec: oneContainer + `,"serviceAccountName":"."`},
		"account of dots":         {spec: oneContainer + `,"serviceAccountName":".."`},
		"account with a blank":    {spec: oneContainer + `,"serviceAccountName":" default"`},
		"mirror pod, old name":    {mirror, onNode + `,"serviceAccount":"default"`},
		"mirror pod, variable":    {mirror, `"nodeName":"n","containers":[{"name":"a","image":"i",` + secrets + `}]`},
		"mirror pod, init":        {mirror, onNode + `,"initContainers":[{"name":"b","image":"i",` + secrets + `}]`},
		"mirror pod, pull secret": {mirror, onNode + `,"imagePullSecrets":[{"name":"p"}]`},
		"mirror pod, nameless":    {mirror, onNode + `,"imagePullSecrets":[{}]`},
		"mirror pod, config map":  {mirror, onNode + `,"volumes":[{"name":"v","configMap":{"name":"c"}}]`},
		"mirror pod, host path":   {mirror, onNode + `,"volumes":[{"name":"v","hostPath":{"path":"/x"}}]`},
		"mirror pod, token":       {mirror, onNode + `,"volumes":[` + projected(`{"serviceAccountToken":{"path":"t"}}`) + `]`},
		"mirror pod, projected":   {mirror, onNode + `,"volumes":[` + projected(`{"secret":{"name":"s"}}`) + `]`},
		"mirror pod, iscsi":       {mirror, onNode + `,"volumes":[` + iscsi + `]`},
		"mirror pod, nowhere":     {mirror, oneContainer},
		"limits, all": {spec: `"volumes":[{"name":"v","secret":{"secretName":"s"}}],"imagePullSecrets":[{"name":"p"}],` +
			`"containers":[{"name":"a","image":"i",` + secrets + `}]`},
		"limits, init first": {spec: `"containers":[{"name":"a","image":"i",` + secrets + `}],` +
			`"initContainers":[{"name":"b","image":"i",` + secrets + `}]`},
		"limits, pull secret last": {spec: `"containers":[{"name":"a","image":"i","envFrom":[{"secretRef":{"name":"listed"}}]}],` +
			`"imagePullSecrets":[{"name":"mirror-registry"},{"name":"p"}]`},
		"iscsi secret": {spec: volumes(iscsi)},
		"image volume": {spec: volumes(`{"name":"v","image":{"reference":"r"}}`)},
		"trust bundle": {spec: volumes(projected(`{"clusterTrustBundle":{"name":"b","path":"p"}}`))},
		"pod certificate": {spec: volumes(projected(
			`{"podCertificate":{"signerName":"a.example/b","keyType":"ED25519","credentialBundlePath":"c"}}`))},
		"claims": {spec: oneContainer + `,"resourceClaims":[{"name":"c","resourceClaimName":"r"}]`},
		"nameless variable": {
			spec: `"containers":[{"name":"a","image":"i",` + `"env":[{"name":"A","valueFrom":{"secretKeyRef":{"key":"k"}}}]}]`,
		},
		"six hundred containers": {spec: `"containers":[` + many(600) + `]`},
	}
	return pods
}

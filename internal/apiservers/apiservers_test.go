// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservers

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"sa-controller-manager/internal/testutil"
)

func identity(name, host string, renewed time.Time) coordinationv1.Lease {
	lease := coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(renewed))},
	}
	if host != "" {
		lease.Labels = map[string]string{corev1.LabelHostname: host}
	}
	return lease
}

func TestRecent(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	unrenewed := identity("d", "cp-4", now)
	unrenewed.Spec.RenewTime = nil
	for name, tc := range map[string]struct {
		reason string
		leases []coordinationv1.Lease
		want   []string
	}{
		"None": {},
		"Two": {
			leases: []coordinationv1.Lease{identity("b", "cp-2", now), identity("a", "cp-1", now.Add(-IdentityAge))},
			want:   []string{"cp-1", "cp-2"},
		},
		"SameHost": {
			reason: "one replica is enough for both",
			leases: []coordinationv1.Lease{identity("a", "cp-1", now), identity("b", "cp-1", now)}, want: []string{"cp-1"},
		},
		"Old": {
			leases: []coordinationv1.Lease{identity("a", "cp-1", now), identity("b", "cp-2", now.Add(-IdentityAge-time.Second))},
			want:   []string{"cp-1"},
		},
		"Unnamed":   {reason: "safer than to overlook it", leases: []coordinationv1.Lease{identity("a", "", now)}, want: []string{"a"}},
		"NoRenewal": {reason: "safer than to overlook it", leases: []coordinationv1.Lease{unrenewed}, want: []string{"cp-4"}},
		"OurClockIsFast": {
			reason: "all Leases look old to us",
			leases: []coordinationv1.Lease{identity("a", "cp-1", now.Add(-time.Hour)), identity("b", "cp-2", now.Add(-time.Hour))},
			want:   []string{"cp-1", "cp-2"},
		},
		"OneClockIsFast": {
			reason: "it must not make the others look old",
			leases: []coordinationv1.Lease{identity("a", "cp-1", now.Add(time.Hour)), identity("b", "cp-2", now)},
			want:   []string{"cp-1", "cp-2"},
		},
	} {
		t.Run(name, func(t *testing.T) { testutil.Check(t, tc.reason, tc.want, recent(tc.leases, now)) })
	}
}

func TestOwnAddress(t *testing.T) {
	t.Parallel()
	// kube-apiserver answers in the first format that is asked for.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := `{"serverAddressByClientCIDRs":[{"serverAddress":"10.0.0.1:6443"}]}`
		if strings.HasPrefix(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
			answer = "k8s\x00"
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	client := testutil.Get(kubernetes.NewForConfig(&rest.Config{
		Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf},
	}))(t)
	got := testutil.Get(OwnAddress(t.Context(), client))(t)
	testutil.Check(t, "by a client that prefers protobuf, as the commands do", "10.0.0.1:6443", got.String())
}

func TestReadLoaded(t *testing.T) {
	t.Parallel()
	const series = "# TYPE a counter\na 1\n" + loadedMetric +
		`{apiserver_id_hash="sha256:us",hash="sha256:x",plugin="MutatingAdmissionWebhook"} 1` + "\n"
	got := testutil.Get(readLoaded(strings.NewReader(series), map[string]bool{"sha256:us": true}))(t)
	testutil.Check(t, "loaded", map[string]string{"MutatingAdmissionWebhook": "sha256:x"}, got)
	_, err := readLoaded(strings.NewReader(series), map[string]bool{"sha256:another": true})
	testutil.Expect(t, err != nil, "the answer of another host's kube-apiserver was taken")
}

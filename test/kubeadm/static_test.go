// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/traffic"
)

// TestStaticRegistration takes over with a webhook that the API cannot delete, while Pods are created,
// from a kube-apiserver with an admission configuration of its own.
func TestStaticRegistration(t *testing.T) {
	await.Long(t)
	t.Parallel() // a kube-apiserver takes half a minute to stop, in which nothing is to be done
	const source = "/etc/kubernetes/pki/admission.yaml"
	n := newNode(t, func(n *node) {
		n.write(t, source, []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: "+
			"EventRateLimit\n  path: limits.yaml\n"))
		n.write(t, "/etc/kubernetes/pki/limits.yaml",
			[]byte("apiVersion: eventratelimit.admission.k8s.io/v1alpha1\nkind: Configuration\nlimits:\n- {type: Server, qps: 1000, burst: 1000}\n"))
		file := manifestOf("kube-apiserver")
		n.write(t, file, bytes.Replace(n.read(t, file), []byte("NodeRestriction"),
			[]byte("NodeRestriction,EventRateLimit\n    - --admission-control-config-file="+source), 1))
	})
	before := n.manifests(t)
	awaitDefaultAccount(t, n, "default")
	tr := traffic.Start(t, func(ctx context.Context) (*corev1.Pod, error) {
		ctx, cancel := context.WithTimeout(ctx, waitTimeout)
		defer cancel()
		return n.client.CoreV1().Pods("default").Create(ctx, traffic.Pod(), metav1.CreateOptions{})
	})
	stdout, stderr := n.must(t, append([]string{"takeover"}, n.podFlags()...)...)
	t.Log(steps(stdout))
	if strings.Contains(stderr, "\r") {
		t.Errorf("there is no terminal, and still stderr has lines that are written over: %q", stderr)
	}
	testutil.Must(t, n.client.AdmissionregistrationV1().MutatingWebhookConfigurations().DeleteCollection(t.Context(),
		metav1.DeleteOptions{}, metav1.ListOptions{}))
	tr.Lasts(t, 2*time.Second)
	weRun(t, n)
	stdout, _ = n.must(t, "handback")
	t.Log(steps(stdout))
	tr.Unharmed(t, traffic.Unanswered)
	n.handedBack(t, before)
}

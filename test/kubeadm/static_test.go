// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"bytes"
	"context"
	"os"
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
	before := map[string]string{}
	for _, name := range edited {
		before[name] = string(n.read(t, manifestOf(name)))
	}
	awaitDefaultAccount(t, n, "default")
	create := func(ctx context.Context) (*corev1.Pod, error) {
		ctx, cancel := context.WithTimeout(ctx, waitTimeout)
		defer cancel()
		return n.client.CoreV1().Pods("default").Create(ctx, traffic.Pod(), metav1.CreateOptions{})
	}
	takeover := append([]string{"takeover"}, n.podFlags()...)

	// kube-apiserver refuses the object name, so that it does not start.
	const foreign = "/etc/kubernetes/sa-controller-manager/static/mutating/foreign.yaml"
	n.write(t, foreign, []byte("apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {name: foreign}\n"))
	code, stdout, stderr := n.kubeadm(t, append(takeover, "--step-timeout=40s")...)
	if code != 1 || !strings.Contains(stderr, "step 3, kube-apiserver: ") ||
		!strings.Contains(stderr, "the previous manifest of kube-apiserver is back") {
		t.Fatalf("with a kube-apiserver that does not start: exit code %d\n%s\n%s", code, stdout, stderr)
	}
	testutil.Check(t, "the manifest that was put back", before["kube-apiserver"], string(n.read(t, manifestOf("kube-apiserver"))))
	poll(t, "Pods are created again", func(ctx context.Context) error {
		_, err := create(ctx)
		return err
	})
	testutil.Must(t, os.Remove(n.path(foreign)))

	tr := traffic.Start(t, create)
	stdout, _ = n.must(t, takeover...)
	t.Log(steps(stdout))
	if err := n.client.AdmissionregistrationV1().MutatingWebhookConfigurations().DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	tr.Lasts(t, 2*time.Second)
	weRun(t, n)
	n.write(t, source, append(n.read(t, source), "- name: NodeRestriction\n"...))
	code, _, stderr = n.kubeadm(t, "takeover")
	if want := "first run: kubeadm handback --steps=kube-apiserver"; code != 1 || !strings.Contains(stderr, want) {
		t.Errorf("after an edit of its file: exit code %d, stderr lacks %q:\n%s", code, want, stderr)
	}
	stdout, _ = n.must(t, "handback")
	t.Log(steps(stdout))
	tr.Unharmed(t, traffic.Unanswered)
	n.handedBack(t, before)
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli/clitest"
	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests/component"
)

// TestHandbackOfADeadProcess is the whole way back of a node whose process is dead, and whose
// kube-apiserver is away for a while: nothing is awaited that the process would have to do.
func TestHandbackOfADeadProcess(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*testing.T, *controlPlane){
		"CrashLooping": func(*testing.T, *controlPlane) {}, // its manifest is there
		"Gone":         func(t *testing.T, p *controlPlane) { p.remove(t, ownFile) },
		"Damaged":      func(t *testing.T, p *controlPlane) { p.write(t, ownFile, []byte("kind: [")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newControlPlane(t, "v1.37")
			before := p.files(t)
			p.writeSteps(t, takeover, all)
			p.write(t, "sa-controller-manager-backup/sa-controller-manager.yaml", []byte(p.files(t)[ownFile])) // it names the port
			prepare(t, p)
			client := fake.NewClientset()
			p.kubelet(t, client)
			p.config.DryRun, p.config.Client, p.config.StepTimeout = false, client, 10*time.Second
			testutil.Must(t, Handback(t.Context(), p.config))
			testutil.Check(t, "files", before, p.withoutBackups(t))
		})
	}
}

// kubelet answers for the Pods of kube-system: it shows what the manifests say. Every third request
// fails.
func (p *controlPlane) kubelet(t *testing.T, client *fake.Clientset) {
	t.Helper()
	show := func(name string) *corev1.Pod {
		m := testutil.Get(component.Files{Name: name, Manifest: []byte(p.files(t)["manifests/"+name+".yaml"])}.Parse())(t)
		return mirror(name, "n", true, m.Command()...)
	}
	calls := 0
	client.PrependReactor("*", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if calls++; calls%3 == 0 {
			return true, nil, errors.New("connection refused")
		}
		get, ok := action.(clienttesting.GetAction)
		if !ok {
			return true, &corev1.PodList{Items: []corev1.Pod{*show(component.APIServer), *show(component.ControllerManager)}}, nil
		}
		name := strings.TrimSuffix(get.GetName(), "-n")
		if name == manager {
			return true, nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
		}
		return true, show(name), nil
	})
}

// TestHandbackForgetsTheRing: no rotation waits for a host without our process.
func TestHandbackForgetsTheRing(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	host := testutil.Get(hosts.HostName())(t)
	client := fake.NewClientset(clitest.IdentityLeases(host)...)
	p.config.Client = client
	testutil.Must(t, p.config.forgetRing(t.Context())) // nothing is published
	testutil.Must(t, hosts.Edit(t.Context(), client, func(p *hosts.Published) error {
		for _, name := range []string{host, "another"} {
			p.Entries = append(p.Entries, hosts.Entry{Host: name, History: []string{"1:x"}})
		}
		return nil
	}))
	for range 2 {
		testutil.Must(t, p.config.forgetRing(t.Context()))
	}
	left, err := hosts.Fetch(t.Context(), client)
	testutil.Expect(t, err == nil && len(left.Entries) == 1 && left.Entries[0].Host == "another", "left are %+v, %v", left.Entries, err)
}

// TestHandbackDryRun asks kube-apiserver which keys were revoked elsewhere, and goes on without.
func TestHandbackDryRun(t *testing.T) {
	t.Parallel()
	p := newControlPlane(t, "v1.37")
	p.writeSteps(t, takeover, all)
	before := p.files(t)
	got := clitest.Run(t, NewCommand(), append([]string{"handback", "--dry-run", "--skip-key-check"}, p.nodeFlags(t)...)...)
	testutil.Expect(t, got.Code == 0 && strings.Contains(got.Stdout, "\nNot checked, because kube-apiserver did not answer (Get "), "%+v",
		got)
	testutil.Check(t, "files", before, p.files(t))
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/traffic"
)

// takenOver is a node that was taken over, whose process is dead for good: its binary ends at once,
// its kubeconfig is damaged, and the key of the CA is not on the node. No Pod is admitted.
func takenOver(t *testing.T, flags ...string) (n *node, before map[string]string) {
	t.Helper()
	n = newNode(t, func(n *node) {
		// As kubeadm has it with an external CA: kube-controller-manager signs no certificates.
		name := manifestOf("kube-controller-manager")
		n.write(t, name, regexp.MustCompile(`(?m)^    - --cluster-signing-.*\n`).ReplaceAll(n.read(t, name), nil))
	})
	awaitDefaultAccount(t, n, "default")
	before = map[string]string{}
	for _, name := range edited {
		before[name] = string(n.read(t, manifestOf(name)))
	}
	n.must(t, append(append([]string{"takeover"}, flags...), n.podFlags()...)...)
	weRun(t, n)
	n.kubelet.breakManager()
	n.write(t, "/etc/kubernetes/sa-controller-manager/kubeconfig", []byte("kind: ["))
	if err := os.Remove(n.path("/etc/kubernetes/pki/ca.key")); err != nil {
		t.Fatal(err)
	}
	poll(t, "Pods are refused", func(ctx context.Context) error {
		_, err := n.client.CoreV1().Pods("default").Create(ctx, traffic.Pod(), metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			return errors.Join(errors.New("the webhook is not missed"), err)
		}
		return nil
	})
	return n, before
}

func (n *node) handedBack(t *testing.T, before map[string]string) {
	t.Helper()
	for _, name := range edited {
		if diff := cmp.Diff(before[name], string(n.read(t, manifestOf(name)))); diff != "" {
			t.Errorf("the manifest of %s is not what it was (-before +after):\n%s", name, diff)
		}
	}
	weAreGone(t, n)
}

// The way back while our process is dead: no Pod is admitted, but the mirror pods of the steps are.
func TestHandbackOfADeadProcess(t *testing.T) {
	await.Long(t)
	t.Parallel() // a kube-apiserver takes half a minute to stop, in which nothing is to be done
	n, before := takenOver(t)
	begun := time.Now()
	stdout, _ := n.must(t, "handback")
	t.Logf("handback took %s:\n%s", time.Since(begun).Round(time.Second), steps(stdout))
	n.handedBack(t, before)
}

// The same with the binary gone, as the page says, with an editor and kubectl.
func TestHandbackByHand(t *testing.T) {
	await.Long(t)
	t.Parallel() // a kube-apiserver takes half a minute to stop, in which nothing is to be done
	n, before := takenOver(t, byURL)
	script := strings.Join(pageCommands(t, "../../docs/takeover.md", "### By hand"), "\n")
	if printed, err := n.shell(t, script).CombinedOutput(); err != nil {
		t.Fatalf("%v of\n%s\nit printed:\n%s\n%s", err, script, printed, n.kubelet)
	}
	n.handedBack(t, before)
}

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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/traffic"
)

// TestHandbackByHand: the way back as the page says, with an editor and kubectl, on a node whose process is dead for
// good: its binary ends at once, its kubeconfig is damaged, and the key of the CA is not on the node. Pods of
// other accounts than default are refused.
func TestHandbackByHand(t *testing.T) {
	await.Long(t)
	t.Parallel() // a kube-apiserver takes half a minute to stop, in which nothing is to be done
	n := newNode(t, func(n *node) {
		// As kubeadm has it with an external CA: kube-controller-manager signs no certificates.
		name := manifestOf("kube-controller-manager")
		n.write(t, name, regexp.MustCompile(`(?m)^    - --cluster-signing-.*\n`).ReplaceAll(n.read(t, name), nil))
	})
	awaitDefaultAccount(t, n, "default")
	before := n.manifests(t)
	n.must(t, append([]string{"takeover"}, n.podFlags()...)...)
	weRun(t, n)
	n.kubelet.breakManager()
	n.write(t, "/etc/kubernetes/sa-controller-manager/kubeconfig", []byte("kind: ["))
	testutil.Must(t, os.Remove(n.path("/etc/kubernetes/pki/ca.key")))
	poll(t, "Pods are refused", func(ctx context.Context) error {
		pod := traffic.Pod()
		pod.Spec.ServiceAccountName = "another" // kube-apiserver completes those of the account default itself
		_, err := n.client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			return errors.Join(errors.New("the webhook is not missed"), err)
		}
		return nil
	})

	script := strings.Join(pageCommands(t, "../../docs/takeover.md", "### By hand"), "\n")
	printed, err := n.shell(t, script).CombinedOutput()
	testutil.Require(t, err == nil, "%v of\n%s\nit printed:\n%s\n%s", err, script, printed, n.kubelet)
	testutil.Check(t, "manifests", before, n.manifests(t))
	weAreGone(t, n)
}

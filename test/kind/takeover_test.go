// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/await"
)

// longerOutage is how much longer kube-apiserver may be away during a takeover than during any other
// edit of its manifest.
const longerOutage = 1.2

func within(t *testing.T, what string, took []time.Duration, restarts int, usual time.Duration) {
	t.Helper()
	t.Logf("%s: kube-apiserver was away for %v; usual is %v", what, took, usual)
	testutil.Expect(t, len(took) == restarts && slices.Max(took).Seconds() <= longerOutage*usual.Seconds(),
		"%s: kube-apiserver was away for %v, want %d times, and %.1f times %v at most", what, took, restarts, longerOutage, usual)
}

// underTraffic creates Pods while do runs and returns how long kube-apiserver was away, each time.
func (c *cluster) underTraffic(t *testing.T, name string, do func()) (took []time.Duration) {
	t.Helper()
	namespace := c.namespace(t, name)
	c.awaitDefaultAccount(t, namespace)
	load := c.startLoad(t, namespace)
	do()
	load.unharmed(t)
	for _, outage := range load.outages("/livez") {
		took = append(took, outage.to.Sub(outage.from))
	}
	return took
}

// isAccount checks that a Pod is authenticated as the account default, with both groups.
func (c *cluster) isAccount(t *testing.T, name string, groups []string, namespace string) {
	t.Helper()
	if want := "system:serviceaccount:" + namespace + ":default"; name != want {
		t.Errorf("the Pod is %q, want %q", name, want)
	}
	for _, want := range []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace} {
		testutil.Expect(t, strings.Contains(" "+strings.Join(groups, " ")+" ", " "+want+" "), "the Pod is in the groups %q, want %q too", groups,
			want)
	}
}

// harmlessEdit is the default.
const harmlessEdit = "    - --profiling=true\n"

// outageOfAnEdit returns how long kube-apiserver is away after an edit of its manifest without a takeover.
func (c *cluster) outageOfAnEdit(t *testing.T) time.Duration {
	t.Helper()
	took := c.underTraffic(t, "during-an-edit", func() {
		c.editManifest(t, "kube-apiserver", harmlessEdit)
		c.awaitRestart(t, "kube-apiserver", "--profiling=true")
	})
	testutil.Require(t, len(took) == 1, "an edit of its manifest takes kube-apiserver away for %v, want once", took)
	return took[0]
}

// editManifest adds an argument to a static pod.
func (c *cluster) editManifest(t *testing.T, name, argument string) {
	t.Helper()
	manifest := c.readManifest(t, name)
	edited := strings.Replace(manifest, "    - "+name+"\n", "    - "+name+"\n"+argument, 1)
	testutil.Require(t, edited != manifest, "the manifest of %s has no command as expected:\n%s", name, manifest)
	c.writeManifest(t, name, edited)
}

// writeManifest writes to a name with a dot first: the kubelet reads every other file of the directory.
func (c *cluster) writeManifest(t *testing.T, name, content string) {
	t.Helper()
	const path = "/etc/kubernetes/manifests/"
	c.onNodeWith(t, content, "sh", "-c", fmt.Sprintf("cat >%[1]s.%[2]s.new && mv %[1]s.%[2]s.new %[1]s%[2]s.yaml", path, name))
}

// awaitRestart waits until the mirror pod of a static pod has the argument and is ready.
func (c *cluster) awaitRestart(t *testing.T, name, argument string) {
	t.Helper()
	mirror := name + "-" + c.controlPlane()
	c.awaitPods(t, metav1.NamespaceSystem, func(pods []*corev1.Pod) error {
		pod, ok := await.Find(pods, mirror)
		if !ok || !strings.Contains(strings.Join(pod.Spec.Containers[0].Command, " "), argument) || !isReady(pod) {
			return fmt.Errorf("%s is not ready with %s", mirror, argument)
		}
		return nil
	})
}

// versions returns the resourceVersions of all ServiceAccounts and Secrets.
func (c *cluster) versions(t *testing.T) map[string]string {
	t.Helper()
	versions := map[string]string{}
	accounts := testutil.Get(c.client.CoreV1().ServiceAccounts("").List(t.Context(), metav1.ListOptions{}))(t)
	for _, account := range accounts.Items {
		versions["serviceaccount "+account.Namespace+"/"+account.Name] = account.ResourceVersion
	}
	secrets := testutil.Get(c.client.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{}))(t)
	for _, secret := range secrets.Items {
		versions["secret "+secret.Namespace+"/"+secret.Name] = secret.ResourceVersion
	}
	return versions
}

// namespace creates a namespace.
func (c *cluster) namespace(t *testing.T, name string) string {
	t.Helper()
	made := testutil.Get(c.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{}))(t)
	return made.Name
}

func (c *cluster) awaitDefaultAccount(t *testing.T, namespace string) {
	t.Helper()
	_, err := await.ServiceAccounts(t.Context(), c.client, namespace, await.Named[*corev1.ServiceAccount]("default"))
	testutil.Must(t, err)
}

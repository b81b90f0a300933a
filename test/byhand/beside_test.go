// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package byhand

import (
	"testing"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// The README has people register the webhook first and turn the in-tree plugin off
// then. In between, both decide on every Pod.
func TestBesideTheInTreePlugin(t *testing.T) {
	cluster := testcluster.New(t, devcluster.Options{APIServerFlags: map[string][]string{"disable-admission-plugins": nil}})
	startManager(t, cluster, webhookFlags(t))
	cluster.AwaitAccounts(t, "default", "default")
	pod := createPod(t, cluster)
	if len(pod.Spec.Volumes) != 1 || len(pod.Spec.Containers[0].VolumeMounts) != 1 || pod.Spec.ServiceAccountName != "default" {
		t.Errorf("serviceaccount %q, volumes %v, mounts %v; want default and one of each",
			pod.Spec.ServiceAccountName, pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts)
	}
}

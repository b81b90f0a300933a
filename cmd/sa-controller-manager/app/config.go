// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

// clients are separate because leader election must not wait behind other requests.
type clients struct {
	main     kubernetes.Interface
	election kubernetes.Interface
	accounts map[string]kubernetes.Interface // by controller; see of
}

// newClients gives the election client no more time for a request than a renewal
// has, so that a hanging connection costs a try and not the lease.
func newClients(config *rest.Config, renewDeadline time.Duration) (clients, error) {
	main, err := kubernetes.NewForConfig(config)
	if err != nil {
		return clients{}, fmt.Errorf("build the API client: %w", err)
	}
	electionConfig := rest.AddUserAgent(rest.CopyConfig(config), "leader-election")
	electionConfig.Timeout = renewDeadline / 2
	election, err := kubernetes.NewForConfig(electionConfig)
	if err != nil {
		return clients{}, fmt.Errorf("build the leader election client: %w", err)
	}
	return clients{main: main, election: election}, nil
}

// resync draws the period between once and twice the minimum, as KCM does
// (cmd/kube-controller-manager/app, ResyncPeriod), so that many processes do not
// resync in step.
func resync(o *options.Generic) time.Duration {
	return time.Duration(float64(o.MinResyncPeriod) * (1 + rand.Float64()))
}

// process is the object that Events about this process regard: the Lease that its
// replicas share or, without one, the namespace that everything of ours is in.
func process(o *options.LeaderElection) *corev1.ObjectReference {
	if !o.LeaderElect {
		return &corev1.ObjectReference{APIVersion: "v1", Kind: "Namespace", Name: metav1.NamespaceSystem}
	}
	return &corev1.ObjectReference{
		APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: o.ResourceNamespace, Name: o.ResourceName,
	}
}

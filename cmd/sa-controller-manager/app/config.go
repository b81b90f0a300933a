// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"math/rand/v2"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// clientConfig tells how to reach the API server. Nothing is sent yet.
func (o *ConnectionOptions) clientConfig() (*rest.Config, error) {
	config, err := o.locate()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = o.QPS, int(o.Burst)
	config.ContentType = o.ContentType
	return rest.AddUserAgent(config, programName), nil
}

// locate does not leave it to clientcmd to fall back from one source to another:
// its last resort is an apiserver on localhost:8080, which hides the mistake.
func (o *ConnectionOptions) locate() (*rest.Config, error) {
	if o.Kubeconfig == "" && o.Master == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("neither --kubeconfig nor --master is given, and this is not a Pod with a ServiceAccount token: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags(o.Master, o.Kubeconfig)
	if clientcmd.IsEmptyConfig(err) { // its words are about an environment variable that has no effect here
		return nil, fmt.Errorf("--kubeconfig %q: it must have a current-context that names a cluster; \"kubectl config use-context\" sets it", o.Kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %q: %w", o.Kubeconfig, err)
	}
	return config, nil
}

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
func (o *GenericOptions) resync() time.Duration {
	return time.Duration(float64(o.MinResyncPeriod) * (1 + rand.Float64()))
}

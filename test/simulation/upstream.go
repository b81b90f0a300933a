// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	upstream "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/serviceaccount"
	"sa-controller-manager/signing/testkeys"
)

// upstreamWorkers is kube-controller-manager's --concurrent-serviceaccount-token-syncs.
const upstreamWorkers = 5

// runUpstream is the part of kube-controller-manager v1.37 that this program replaces: it leads, and ends when it has
// lost its Lease, as that program does.
func runUpstream(ctx context.Context, config *rest.Config, name string) error {
	config = rest.CopyConfig(config)
	config.UserAgent = "kube-controller-manager/v1.37.2" // which managedFields name
	made, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, "kube-system", "kube-controller-manager",
		made.CoreV1(), made.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: name})
	if err != nil {
		return err
	}
	var working sync.WaitGroup
	defer working.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, Name: "kube-controller-manager",
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				working.Go(func() {
					if err := leadUpstream(ctx, made, config.CAData); err != nil {
						panic(err)
					}
				})
			},
			OnStoppedLeading: stop,
		},
	})
	return nil
}

func leadUpstream(ctx context.Context, client kubernetes.Interface, ca []byte) error {
	logger := klog.FromContext(ctx)
	private, err := keyutil.ParsePrivateKeyPEM(testkeys.P256())
	if err != nil {
		return err
	}
	generator, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, private)
	if err != nil {
		return err
	}
	watched := informers.NewSharedInformerFactory(client, 12*time.Hour)
	core := watched.Core().V1()
	tokens, err := upstream.NewTokensController(logger, core.ServiceAccounts(), core.Secrets(), client,
		upstream.TokensControllerOptions{TokenGenerator: generator, RootCA: ca})
	if err != nil {
		return err
	}
	accounts, err := upstream.NewServiceAccountsController(logger, core.ServiceAccounts(), core.Namespaces(), client,
		upstream.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return err
	}
	publisher, err := rootcacertpublisher.NewPublisher(core.ConfigMaps(), core.Namespaces(), client, ca)
	if err != nil {
		return err
	}
	watched.StartWithContext(ctx)
	var running sync.WaitGroup
	running.Go(func() { tokens.Run(ctx, upstreamWorkers) })
	running.Go(func() { accounts.Run(ctx, 1) })
	running.Go(func() { publisher.Run(ctx, 1) })
	running.Wait()
	watched.Shutdown()
	return nil
}

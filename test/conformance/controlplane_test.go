// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"sa-controller-manager/test/devcluster"
)

// startControlPlane starts etcd, kube-apiserver without its ServiceAccount plugin,
// kube-controller-manager without its ServiceAccount controllers, and the binary under
// test in their place. stop logs on stderr what it could not end.
func startControlPlane(ctx context.Context) (kubeconfig string, stop func(), err error) {
	cluster, err := devcluster.Start(ctx, devcluster.Options{
		APIServerFlags: map[string][]string{"disable-admission-plugins": {"ServiceAccount"}},
	})
	if err != nil {
		return "", nil, err
	}
	stop = func() {
		if err := cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	if err := startManagers(ctx, cluster); err != nil {
		stop()
		return "", nil, err
	}
	return cluster.Kubeconfig(), stop, nil
}

func startManagers(ctx context.Context, cluster *devcluster.Cluster) error {
	// Without an empty key file it would go on with its token controller.
	kcm, err := cluster.StartKubeControllerManager("--service-account-private-key-file=", "--controllers="+strings.Join([]string{
		"*", "-serviceaccount-controller", "-root-ca-certificate-publisher-controller", "-legacy-serviceaccount-token-cleaner-controller",
		"-kube-apiserver-serving-clustertrustbundle-publisher-controller",
	}, ","))
	if err != nil {
		return err
	}
	binary, err := devcluster.FindBinary(ctx)
	if err != nil {
		return err
	}
	port, err := devcluster.FreePort()
	if err != nil {
		return err
	}
	manager, err := binary.StartManager(cluster, "--token-secrets=manual",
		"--webhook-port="+strconv.Itoa(port), "--webhook-registration=url")
	if err != nil {
		return err
	}
	return errors.Join(kcm.Ready(ctx), manager.Ready(ctx))
}

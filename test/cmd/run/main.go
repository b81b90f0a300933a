// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command run keeps a real control plane and sa-controller-manager beside it up
// until Ctrl-C, to try things by hand. The manager's log goes to standard error.
// Arguments are flags for the manager. Nothing is left behind.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"sa-controller-manager/test/devcluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first Ctrl-C asks; the second gets the default, which is to die at once.
	context.AfterFunc(ctx, stop)
	err := keepUp(ctx, os.Args[1:])
	if errors.Is(err, context.Canceled) {
		fmt.Println("\nStopped.")
		return
	}
	fmt.Fprintln(os.Stderr, "run:", err)
	os.Exit(1)
}

// keepUp returns what ended the run: context.Canceled if it was the user.
func keepUp(ctx context.Context, flags []string) error {
	binary, err := devcluster.FindBinary(ctx)
	if err != nil {
		return err
	}
	binary.Log = os.Stderr
	cluster, err := devcluster.Start(ctx, devcluster.Options{})
	if err != nil {
		return err
	}
	defer func() {
		if err := cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "run: stop the control plane:", err)
		}
	}()
	manager, err := binary.StartManager(cluster, flags...)
	if err != nil {
		return err
	}
	if err := manager.Ready(ctx); err != nil {
		return err
	}
	fmt.Printf(welcome, cluster.Kubeconfig(), kubectl(), manager.URL(), cluster.Config().Host, cluster.CAFile(), binary.Path)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-manager.Done():
		return errors.New("the manager ended by itself; its log above says why")
	}
}

// kubectl is the command to suggest: the user's own, or else the one that make
// run builds.
func kubectl() string {
	if _, err := exec.LookPath("kubectl"); err == nil {
		return "kubectl"
	}
	built, err := devcluster.ControlPlaneBinary("kubectl")
	if err != nil {
		return "kubectl"
	}
	return built
}

// welcome takes the kubeconfig, kubectl, the manager's URL, the API server's URL,
// its CA file and our binary. The token is tried without the kubeconfig, whose certificate
// would take precedence over it.
const welcome = `
The control plane is up until Ctrl-C. In another terminal:

  export KUBECONFIG=%[1]s

Four things to try:

  1. A new namespace gets an account and a token that works:
       %[2]s create namespace trial
       %[2]s -n trial describe serviceaccount,secret
       token=$(%[2]s -n trial get secret -o jsonpath='{.items[0].data.token}' | base64 -d)
       %[2]s --kubeconfig=/dev/null --server=%[4]s --certificate-authority=%[5]s --token="$token" auth whoami

  2. A Secret made by hand is filled, and goes with its account:
       %[2]s -n trial create serviceaccount robot
       echo '{"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
         "metadata": {"name": "robot", "annotations": {"kubernetes.io/service-account.name": "robot"}}}' |
         %[2]s -n trial create -f -
       %[2]s -n trial describe secret robot
       %[2]s -n trial delete serviceaccount robot
       %[2]s -n trial get secret

  3. What the manager counts and whether it is well:
       %[2]s --server=%[3]s --insecure-skip-tls-verify get --raw /metrics
       curl --insecure '%[3]s/readyz?verbose'

  4. What doctor finds: long-lived tokens for every account, as --token-secrets=auto creates
     them, and a webhook that is not registered. The manager is an administrator here, so
     the permissions that the manifests give it are left out:
       %[6]s doctor --kubeconfig=%[1]s --skip=permissions

`

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command run keeps a real control plane and sa-controller-manager beside it up
// until Ctrl-C, to try things by hand, with the permissions, the webhook and the identity of a
// cluster in use. It is run from the root of the repository. Arguments are flags for the manager.
// Only a log file is left behind, if something has failed.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/must"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first Ctrl-C asks; the second gets the default, which is to die at once.
	context.AfterFunc(ctx, stop)
	var log *os.File
	err := must.Catch(func() {
		log = must.Get(os.CreateTemp("", "sacm-run-*.log"))
		keepUp(ctx, log, os.Args[1:])
	})
	if ctx.Err() != nil && log != nil {
		fmt.Println("\nStopped.")
		_ = os.Remove(log.Name())
		return
	}
	fmt.Fprintln(os.Stderr, "run:", err)
	os.Exit(1)
}

// keepUp returns when the user has ended the run.
func keepUp(ctx context.Context, log *os.File, flags []string) {
	fmt.Println("The log of etcd, kube-apiserver and sa-controller-manager:", log.Name())
	binary := must.Get(devcluster.FindBinary(ctx))
	binary.Log = log
	cluster := must.Get(devcluster.Start(ctx, devcluster.Options{
		Log: log, APIServerFlags: map[string][]string{"disable-admission-plugins": {"ServiceAccount"}},
	}))
	defer func() {
		if err := cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "run: stop the control plane:", err)
		}
	}()
	manager := must.Get(binary.StartManager(cluster, append([]string{
		"--kubeconfig=" + must.Get(identity(ctx, cluster)), "--leader-elect=true", "--token-secrets=manual",
		"--webhook-registration=url", "--webhook-port=" + strconv.Itoa(must.Get(devcluster.FreePort())),
	}, flags...)...))
	must.Do(manager.Ready(ctx))
	fmt.Printf(welcome, cluster.Kubeconfig(), filepath.Dir(binary.Path), filepath.Dir(kubectl()), manager.URL(), cluster.Config().Host,
		cluster.CAFile())
	select {
	case <-ctx.Done():
	case <-manager.Done():
		must.Do(errors.New("the manager ended by itself; the log says why"))
	}
}

// identity returns the kubeconfig of the manager's user, who has what manifests/permissions give.
func identity(ctx context.Context, cluster *devcluster.Cluster) (kubeconfig string, err error) {
	for _, directory := range []string{"manifests/permissions", "manifests/permissions/completion"} {
		apply := exec.CommandContext(ctx, kubectl(), "--kubeconfig="+cluster.Kubeconfig(), "apply", "-k", directory)
		if output, err := apply.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", apply, err, output)
		}
	}
	kubeconfig, _, err = cluster.Identity("system:sa-controller-manager")
	return kubeconfig, err
}

// kubectl is the one that make run builds, or else the user's own.
func kubectl() string {
	if built, err := devcluster.ControlPlaneBinary("kubectl"); err == nil {
		return built
	}
	users, _ := exec.LookPath("kubectl") // the first call says that there is none
	return users
}

// welcome takes the kubeconfig, the directories of our binary and of kubectl, the manager's URL, the API
// server's URL and its CA file. The token is tried without the kubeconfig, whose certificate would take
// precedence over it.
const welcome = `
The control plane is up until Ctrl-C. In another terminal:

  export KUBECONFIG=%[1]s
  export PATH=%[2]s:%[3]s:$PATH

Five things to try:

  1. A new namespace gets an account, whose token works, and a Pod gets both:
       kubectl create namespace trial
       token=$(kubectl -n trial create token default)
       kubectl --kubeconfig=/dev/null --server=%[5]s --certificate-authority=%[6]s --token="$token" auth whoami
       kubectl -n trial run web --image=web --dry-run=server -o yaml

  2. A Secret made by hand is filled:
       kubectl -n trial create serviceaccount robot
       echo '{"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
         "metadata": {"name": "robot", "annotations": {"kubernetes.io/service-account.name": "robot"}}}' |
         kubectl -n trial create -f -
       kubectl -n trial describe secret robot

  3. The audit lists it, and it goes with its account:
       sa-controller-manager tokens audit --sort-by=findings
       kubectl -n trial delete serviceaccount robot
       kubectl -n trial get secret

  4. What the manager counts and whether it is well:
       kubectl --server=%[4]s --insecure-skip-tls-verify get --raw /metrics
       curl --insecure '%[4]s/readyz?verbose'

  5. Nothing is wrong, and what is wrong while the webhook is off:
       sa-controller-manager doctor
       sa-controller-manager webhook unregister && sa-controller-manager doctor
       sa-controller-manager webhook register

`

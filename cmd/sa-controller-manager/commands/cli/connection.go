// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/homedir"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/resolve"
)

// ClientFunc makes the client of a command that sends a few requests.
type ClientFunc func(o *options.Connection) (kubernetes.Interface, error)

// AddConnectionFlags gives a command of a few requests the flags that say where to. The
// other ones are about many requests.
func AddConnectionFlags(cmd *cobra.Command, o *options.Connection) {
	*o = options.NewConnection()
	options.AddSome(cmd.Flags(), map[string]string{
		"kubeconfig": "Kubeconfig `file`. Default: in a Pod its own cluster; else KUBECONFIG, ~/.kube/config or " + adminConf +
			", the first that exists.",
		"master": "",
	}, o)
	cmd.Flags().StringVar(&o.Context, "context", o.Context, "`Context` of the kubeconfig. Without it, its current one.")
}

// AddDryRun gives a command that writes the flag to change nothing.
func AddDryRun(cmd *cobra.Command, o *options.Connection) {
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", o.DryRun, "Check everything, say what would be done, and change nothing.")
}

// WritesTo says which cluster a command changes, which the user need not have named, and if it does not.
func WritesTo(stderr io.Writer, o *options.Connection) {
	if o.Cluster != "" {
		fmt.Fprintf(stderr, "Cluster:    %s\n", o.Cluster)
	}
	if o.DryRun {
		fmt.Fprintln(stderr, "Dry run:    nothing is changed; what follows is what would be")
	}
}

// adminConf is kubeadm's kubeconfig on a control-plane node.
const adminConf = "/etc/kubernetes/admin.conf"

// Connect makes a client of the cluster of the flags, or of one that it finds without them.
func Connect(o *options.Connection) (kubernetes.Interface, error) {
	_, err := rest.InClusterConfig()
	if err := find(o, err == nil, filepath.Join(homedir.HomeDir(), ".kube", "config"), adminConf); err != nil {
		return nil, err
	}
	return ConnectAsManager(o)
}

// ConnectAsManager makes a client as the manager does, whose identity must not be that of a user.
func ConnectAsManager(o *options.Connection) (kubernetes.Interface, error) {
	config, err := resolve.ClientConfig(o)
	if err != nil {
		return nil, err
	}
	return NewClient(config)
}

// find finds a cluster as kubectl does, except that in a Pod its own comes first, and admin.conf last.
func find(o *options.Connection, inPod bool, home, admin string) error {
	exists := func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	}
	listed := filepath.SplitList(os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
	switch {
	case o.Kubeconfig != "", inPod && o.Master == "" && o.Context == "":
	case len(listed) > 0:
		if !slices.ContainsFunc(listed, exists) {
			return fmt.Errorf("KUBECONFIG=%s: no such file", os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
		}
		o.Found = listed
	case exists(home):
		o.Found = []string{home}
	case exists(admin):
		o.Kubeconfig = admin // commands in remedies need the flag
	case o.Master == "":
		return fmt.Errorf("no cluster is named: give --kubeconfig or set KUBECONFIG; there is neither %s nor %s, and this "+
			"is no Pod with a ServiceAccount token", home, admin)
	}
	return nil
}

// NewClient makes a client of what resolve.Tune returned.
func NewClient(config *rest.Config) (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("build the API client: %w", err)
	}
	return client, nil
}

// AnswerWithin bounds all requests of a command.
func AnswerWithin(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
}

// plain matches text without characters that are special to a shell.
var plain = regexp.MustCompile(`^[\w./:@%+,=-]+$`)

// ClusterFlags returns the flags for the same cluster, each with a leading blank; those that are empty
// are left out.
func ClusterFlags(o options.Connection) string {
	var flags strings.Builder
	for _, flag := range [][2]string{{"kubeconfig", o.Kubeconfig}, {"master", o.Master}, {"context", o.Context}} {
		value := flag[1]
		if value == "" {
			continue
		}
		if !plain.MatchString(value) {
			value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
		}
		flags.WriteString(" --" + flag[0] + "=" + value)
	}
	return flags.String()
}

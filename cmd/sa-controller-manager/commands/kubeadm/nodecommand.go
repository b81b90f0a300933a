// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/resolve"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/manifests/nodefile"
	"sa-controller-manager/manifests/takeover"
)

// requestTimeout bounds one request, because kube-apiserver goes away in between.
const requestTimeout = 10 * time.Second

// nodeFlags are the flags of both commands.
type nodeFlags struct {
	takeover.Config

	pod        *podFlags // of a takeover
	kubeconfig string
	steps      []string // of this direction
	yes        bool
}

// newNodeFlags has the steps of a command in order.
func newNodeFlags(steps ...string) nodeFlags {
	hostname, _ := os.Hostname() // without one, the flag is needed
	return nodeFlags{steps: steps, kubeconfig: "/etc/kubernetes/admin.conf", Config: takeover.Config{
		// As kubeadm does.
		Node:         strings.ToLower(strings.TrimSpace(hostname)),
		ManifestsDir: "/etc/kubernetes/manifests",
		StepTimeout:  3 * time.Minute,
	}}
}

func (f *nodeFlags) addTo(cmd *cobra.Command) {
	f.addPlaces(cmd)
	fs := cmd.Flags()
	if len(f.steps) > 0 {
		fs.StringSliceVar(&f.Steps, "steps", f.Steps, "Run only these `steps`, of "+strings.Join(f.steps, ", ")+".")
	}
	fs.BoolVar(&f.DryRun, "dry-run", f.DryRun, "Print the steps and the changes to every file, and change nothing.")
	fs.DurationVar(&f.StepTimeout, "step-timeout", f.StepTimeout, "How long to wait for each step.")
	fs.BoolVar(&f.yes, "yes", f.yes, "Do not ask for confirmation.")
}

// addPlaces adds the flags for what is where.
func (f *nodeFlags) addPlaces(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.kubeconfig, "kubeconfig", f.kubeconfig, "Kubeconfig `file` of an administrator.")
	fs.StringVar(&f.Node, "node-name", f.Node,
		"The `name` of this node's Node object, the suffix of its mirror pods. Default: the host name.")
	fs.StringVar(&f.ManifestsDir, "manifests-dir", f.ManifestsDir, "The `directory` of the static pod manifests. The original ones are "+
		"kept in sa-controller-manager-backup beside it, and patches with the same changes for kubeadm in sa-controller-manager-patches.")
	fs.Lookup("node-name").DefValue = "" // depends on the machine
}

func (f *nodeFlags) validate() []error {
	var p options.Problems
	p.Positive("step-timeout", f.StepTimeout)
	if f.Node == "" {
		p.Add("node-name", f.Node, "must be the name of this node")
	}
	for _, name := range f.Steps {
		if len(f.steps) > 0 && !slices.Contains(f.steps, name) {
			p.Add("steps", name, "must be of "+strings.Join(f.steps, ", "))
		}
	}
	if dir := filepath.Clean(f.ManifestsDir); !filepath.IsAbs(dir) || dir == "/" {
		p.Add("manifests-dir", f.ManifestsDir, "must be the absolute path of a directory in another one")
	}
	return p
}

// run connects to the API server and calls act while no other command works on this node. A dry run takes no lock and needs no
// API server.
func (f *nodeFlags) run(cmd *cobra.Command, act func(context.Context, takeover.Config) error) error {
	if err := cli.InvalidFlags(cmd.CommandPath(), f.validate()); err != nil {
		return err
	}
	c := f.Config
	if !c.DryRun {
		unlock, err := nodefile.Lock(c.ManifestsDir)
		if err == nil {
			defer unlock()
		} else if !errors.Is(err, fs.ErrNotExist) { // what reads the manifests says more
			return err
		}
	}
	var err error
	if c.Client, c.Cluster, err = adminClient(f.kubeconfig); err != nil && (!c.DryRun || cmd.Flags().Changed("kubeconfig")) {
		return err
	}
	if c.DryRun && err == nil {
		_, err = c.Client.Discovery().ServerVersion()
	}
	if err != nil {
		c.Client, c.Silent = nil, err
	}
	c.Confirm = func(ctx context.Context, question string) bool {
		if f.yes {
			return true
		}
		sure, terminal := cli.Ask(ctx, cmd.InOrStdin(), cmd.ErrOrStderr(), question)
		return sure || !terminal
	}
	ctx, stop := untilHangup(cmd.Context())
	defer stop()
	progress := cli.NewProgress(cmd.ErrOrStderr())
	defer progress.End()
	c.Out, c.Progress = progress.Above(cmd.OutOrStdout()), progress.Show
	return act(ctx, c)
}

// untilHangup ends with a dropped SSH session, too, so that a step rolls back, unless nohup ignores that. A pipe without
// a reader does not end the command, which serves the node.
func untilHangup(ctx context.Context) (context.Context, context.CancelFunc) {
	signal.Ignore(syscall.SIGPIPE)
	if signal.Ignored(syscall.SIGHUP) {
		return context.WithCancel(ctx)
	}
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}

// adminClient makes a client from a kubeconfig and from nothing else, and names the cluster.
func adminClient(file string) (client kubernetes.Interface, cluster string, err error) {
	o := options.NewConnection()
	o.Kubeconfig, o.ContentType = file, ""
	config, err := resolve.ClientConfig(&o)
	if err != nil {
		return nil, "", err
	}
	config.Timeout = requestTimeout
	client, err = cli.NewClient(config)
	return client, o.Cluster, err
}

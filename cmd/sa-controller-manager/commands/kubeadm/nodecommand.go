// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
)

// requestTimeout bounds one request, because kube-apiserver goes away in between.
const requestTimeout = 10 * time.Second

const takeoverDescription = `Replace the ServiceAccount controllers of kube-controller-manager and the ServiceAccount
plugin of kube-apiserver on this control-plane node:

  1. manager: writes our static pod, with the settings of kube-controller-manager, and waits
     until it is ready and kube-apiserver calls its webhook.
  2. kube-controller-manager, then 3. kube-apiserver: appends lines to the command in its
     manifest, and waits until it is ready again.

Everything else in the two manifests stays as it is, byte for byte. What the command does not
understand it refuses before it changes anything; --dry-run shows what it does to each flag.

A step that times out ends the command with advice. Running the same command again continues
from there; "kubeadm handback" undoes everything. docs/takeover.md has the details.`

const takeoverExamples = `  # What would be done
  sa-controller-manager kubeadm takeover --dry-run

  # Take over, with one token Secret for every ServiceAccount
  sa-controller-manager kubeadm takeover --token-secrets=auto

  # Take over, and sign kube-apiserver's tokens
  sa-controller-manager kubeadm takeover --external-signer

  # Take over, with a webhook that no client of the API can delete
  sa-controller-manager kubeadm takeover --static-registration`

const handbackDescription = `Undo a takeover on this control-plane node: kube-apiserver gets its plugin back, then
kube-controller-manager its controllers; then the command unregisters the webhook, removes our
static pod, and deletes the webhook configurations.

A manifest that has not been edited since the takeover becomes what it was before, byte for
byte. From another one the command removes the lines that the takeover added. This also works
while kube-apiserver does not start, and whatever is wrong with our process.
docs/uninstall.md lists what remains.

The key files that the two components get back must exist, and must hold the key that signs
now and all keys that verify: those of our --service-account-key-ring and
--service-account-key-file. After a rotation they may not. The command then names the key and
refuses before it changes anything; docs/rotation.md has the commands that fix it.`

const handbackExamples = `  # What would be done
  sa-controller-manager kubeadm handback --dry-run

  sa-controller-manager kubeadm handback`

// nodeFlags are the flags of both commands.
type nodeFlags struct {
	Config

	kubeconfig string
	steps      []string // of this direction
}

// newNodeFlags has the steps of a command in order.
func newNodeFlags(steps ...string) nodeFlags {
	hostname, err := os.Hostname()
	if err != nil {
		hostname = ""
	}
	return nodeFlags{steps: steps, Config: Config{
		// As kubeadm does.
		Node:         strings.ToLower(strings.TrimSpace(hostname)),
		ManifestsDir: "/etc/kubernetes/manifests",
		BackupDir:    "/etc/kubernetes/sa-controller-manager-backup",
		PatchesDir:   "/etc/kubernetes/sa-controller-manager-patches",
		StepTimeout:  3 * time.Minute,
		Clock:        clock.RealClock{},
	}}
}

func (f *nodeFlags) addTo(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.kubeconfig, "kubeconfig", f.kubeconfig,
		"kubeconfig `file` of an administrator. Default: /etc/kubernetes/admin.conf, or super-admin.conf if that does not exist.")
	fs.StringVar(&f.Node, "node-name", f.Node, "`name` of this node's Node object, the suffix of its mirror pods. Default: the host name.")
	fs.StringVar(&f.ManifestsDir, "manifests-dir", f.ManifestsDir, "`directory` of the static pod manifests.")
	fs.StringVar(&f.BackupDir, "backup-dir", f.BackupDir, "`directory` for the original manifests.")
	fs.StringVar(&f.PatchesDir, "patches-dir", f.PatchesDir, "`directory` for kubeadm patches with the same changes.")
	fs.StringSliceVar(&f.Steps, "steps", f.Steps, "Run only these `steps`, of "+strings.Join(f.steps, ", ")+
		". Needed with several control-plane nodes, see docs/takeover.md.")
	fs.BoolVar(&f.DryRun, "dry-run", f.DryRun, "Print the steps and the changes to every file, and change nothing.")
	fs.DurationVar(&f.StepTimeout, "step-timeout", f.StepTimeout, "How long to wait for each step.")
	fs.Lookup("node-name").DefValue = "" // depends on the machine
}

func (f *nodeFlags) validate() []error {
	var p options.Problems
	p.Positive("step-timeout", f.StepTimeout)
	if f.Node == "" {
		p.Add("node-name", f.Node, "must be the name of this node")
	}
	for _, name := range f.Steps {
		if !slices.Contains(f.steps, name) {
			p.Add("steps", name, "must be of "+strings.Join(f.steps, ", "))
		}
	}
	for flag, dir := range map[string]string{"backup-dir": f.BackupDir, "patches-dir": f.PatchesDir} {
		if filepath.Clean(dir) == filepath.Clean(f.ManifestsDir) {
			p.Add(flag, dir, "must not be --manifests-dir, where the kubelet takes every file for a manifest")
		}
	}
	return p
}

// run connects to the API server and calls act. A dry run needs no API server.
func (f *nodeFlags) run(cmd *cobra.Command, act func(context.Context, Config) error) error {
	if err := cli.InvalidFlags(cmd.CommandPath(), f.validate()); err != nil {
		return err
	}
	c := f.Config
	if !c.DryRun {
		var err error
		if c.ClientAt, err = adminClients(f.kubeconfig); err != nil {
			return err
		}
		if c.Client, err = c.ClientAt(""); err != nil {
			return err
		}
	}
	progress := cli.NewProgress(cmd.ErrOrStderr())
	defer progress.End()
	c.Out, c.Progress = progress.Above(cmd.OutOrStdout()), progress.Show
	return act(cmd.Context(), c)
}

// adminClients returns a function that makes clients from the given kubeconfig or kubeadm's for
// administrators, for the server at a URL or, if that is "", the one in the kubeconfig.
func adminClients(file string) (func(url string) (kubernetes.Interface, error), error) {
	if file == "" {
		file = "/etc/kubernetes/admin.conf"
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			file = "/etc/kubernetes/super-admin.conf"
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %q: %w", file, err)
	}
	config.Timeout = requestTimeout
	config.WarningHandler = rest.NoWarnings{}
	return func(url string) (kubernetes.Interface, error) {
		config := rest.CopyConfig(config)
		config.Host = cmp.Or(url, config.Host)
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, fmt.Errorf("build the API client: %w", err)
		}
		return client, nil
	}, nil
}

func newTakeoverCommand(p podFlags) *cobra.Command {
	f := newNodeFlags(StepManager, StepControllerManager, StepAPIServer)
	cmd := &cobra.Command{
		Use:     "takeover",
		Short:   "Take over from kube-controller-manager and kube-apiserver on this node",
		Long:    takeoverDescription,
		Example: takeoverExamples,
		Args:    cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.InvalidFlags(cmd.CommandPath(), p.validate()); err != nil {
				return err
			}
			for i, name := range f.AcceptFlags {
				f.AcceptFlags[i] = staticpod.FlagName(name)
			}
			f.Render = p.render
			if p.image == "" {
				f.Binary = p.binary
			}
			f.Rewrite = p.given(cmd.Flags()) || f.ExternalSigner || f.StaticRegistration
			return f.run(cmd, Takeover)
		},
	}
	f.addTo(cmd)
	p.addTo(cmd.Flags())
	cmd.Flags().StringArrayVar(&f.AcceptFlags, "accept-flag", f.AcceptFlags,
		"`name` of a flag of kube-controller-manager to leave out instead of refusing it. May be given more than once. "+
			"--dry-run shows which flags are refused and accepted.")
	cmd.Flags().BoolVar(&f.ExternalSigner, "external-signer", f.ExternalSigner,
		"Have our process sign kube-apiserver's tokens, so that keys change without restarting it: "+
			"replaces its key flags by --service-account-signing-endpoint. Implies --rewrite.")
	cmd.Flags().BoolVar(&f.StaticRegistration, "static-registration", f.StaticRegistration,
		"Have kube-apiserver (v1.36 or newer) read our webhook from files of this node, which no API client can delete. Implies --rewrite.")
	return cmd
}

func newHandbackCommand() *cobra.Command {
	f := newNodeFlags(StepAPIServer, StepControllerManager, StepWebhook, StepManager)
	cmd := &cobra.Command{
		Use:     "handback",
		Short:   "Undo a takeover on this node",
		Long:    handbackDescription,
		Example: handbackExamples,
		Args:    cli.NoArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd, Handback) },
	}
	f.addTo(cmd)
	cmd.Flags().StringVar(&f.SigningKeyFile, "signing-key-file", f.SigningKeyFile,
		"Private key `file` that kube-controller-manager gets in a cluster that was created with our process and never had another. "+
			"Default: the one in our manifest.")
	cmd.Flags().BoolVar(&f.SkipKeyCheck, "skip-key-check", f.SkipKeyCheck,
		"Continue although the key files that the two components get back are missing or lack keys in use, and print what is refused then.")
	cmd.Flags().BoolVar(&f.NewKey, "new-key", f.NewKey,
		"Write a new private key into the key file of the two components, and all public keys in use into that for verification. "+
			"For a key that another process has and does not give away, also when that process is lost. "+
			"Copy both files to the other nodes before their handback.")
	return cmd
}

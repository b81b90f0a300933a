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

const takeoverDescription = `Put this program in the place of the ServiceAccount controllers of kube-controller-manager
and of the ServiceAccount plugin of kube-apiserver, on this control-plane node:

  1. manager: its static pod is written; it must become ready, and kube-apiserver must call
     its webhook.
  2. kube-controller-manager: lines are appended to the command in its manifest. It must be
     back.
  3. kube-apiserver: the same.

With --external-signer, kube-apiserver's two key flags go too, and it has its tokens signed
by our process from then on. docs/takeover.md says what that means.

Our process does what kube-controller-manager was told to: key, root CA, controllers that
are off, and periods are carried over. --dry-run prints what becomes of each flag.

All else in the two manifests stays as it is, byte for byte. What is not understood is
refused before anything is changed. The manifests as they were are kept in --backup-dir,
and --patches-dir gets the same changes for kubeadm upgrade --patches.

A step that does not come in time ends the command with what to do. The same command again
goes on from there; "kubeadm handback" goes back.`

const takeoverExamples = `  # What would be done
  sa-controller-manager kubeadm takeover --dry-run

  # Do it, with one token Secret for every ServiceAccount
  sa-controller-manager kubeadm takeover --token-secrets=auto

  # And sign kube-apiserver's tokens
  sa-controller-manager kubeadm takeover --external-signer`

const handbackDescription = `Undo a takeover on this control-plane node: kube-apiserver gets its plugin back, then
kube-controller-manager its controllers; the webhook is unregistered, our static pod is
removed, and the webhook configurations are deleted.

A manifest that nobody has edited since the takeover is what it was before, byte for byte.
From one that somebody has edited, or that kubeadm upgrade has written, the lines go that
the takeover has added: the patch in --patches-dir is the record of them. This also works
while kube-apiserver does not come up, and while our process does not, whatever is wrong
with it. docs/uninstall.md says what is left after it.

The key files that the two get back must be there, and hold the key that signs now and all
that verify; after a rotation they may not. That is refused before anything is changed,
with the command that is the remedy. None of these takes a public key out, or writes over
a private key that is not ours. What verifies is every key of our
--service-account-key-ring and --service-account-key-file.`

const handbackExamples = `  # What would be done
  sa-controller-manager kubeadm handback --dry-run

  sa-controller-manager kubeadm handback`

// nodeFlags are what both directions have.
type nodeFlags struct {
	Config

	kubeconfig string
	steps      []string // of this direction
}

func newNodeFlags(steps []string) nodeFlags {
	hostname, err := os.Hostname()
	if err != nil {
		hostname = ""
	}
	return nodeFlags{steps: steps, Config: Config{
		// kubeadm's default too.
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
	fs.StringVar(&f.kubeconfig, "kubeconfig", f.kubeconfig, "kubeconfig `file` of an administrator. Default: /etc/kubernetes/admin.conf, else super-admin.conf there.")
	fs.StringVar(&f.Node, "node-name", f.Node, "Name of this node's Node object, which its mirror pods end in. Default: the host's name.")
	fs.StringVar(&f.ManifestsDir, "manifests-dir", f.ManifestsDir, "`directory` of the static pods' manifests.")
	fs.StringVar(&f.BackupDir, "backup-dir", f.BackupDir, "`directory` for the manifests as they were.")
	fs.StringVar(&f.PatchesDir, "patches-dir", f.PatchesDir, "`directory` for kubeadm patches with the same changes.")
	fs.StringSliceVar(&f.Steps, "steps", f.Steps, "Do these steps only, of "+strings.Join(f.steps, ", ")+". For several control-plane nodes, see docs/takeover.md.")
	fs.BoolVar(&f.DryRun, "dry-run", f.DryRun, "Print the steps and what would become of every file, and change nothing.")
	fs.DurationVar(&f.StepTimeout, "step-timeout", f.StepTimeout, "How long each step may take to come true.")
	fs.Lookup("node-name").DefValue = "" // of the machine that prints the help
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
			p.Add(flag, dir, "must not be --manifests-dir: the kubelet takes every file there for a manifest")
		}
	}
	return p
}

// run connects and hands over. A dry run needs no API server.
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

// adminClients makes clients of the given kubeconfig, or of kubeadm's for administrators, for the
// server that it names or for another.
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
	f := newNodeFlags(TakeoverSteps())
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
			f.Rewrite = p.given(cmd.Flags()) || f.ExternalSigner
			return f.run(cmd, Takeover)
		},
	}
	f.addTo(cmd)
	p.addTo(cmd.Flags())
	cmd.Flags().StringArrayVar(&f.AcceptFlags, "accept-flag", f.AcceptFlags,
		"`name` of a flag of kube-controller-manager that a takeover refuses: our process does without it. May be given more than once. --dry-run shows what is refused and accepted.")
	cmd.Flags().BoolVar(&f.ExternalSigner, "external-signer", f.ExternalSigner,
		"Have kube-apiserver's tokens signed by our process, so that keys change without a restart of it: its key flags go, --service-account-signing-endpoint comes. Implies --rewrite.")
	return cmd
}

func newHandbackCommand() *cobra.Command {
	f := newNodeFlags(HandbackSteps())
	cmd := &cobra.Command{
		Use:     "handback",
		Short:   "Give back to kube-controller-manager and kube-apiserver on this node",
		Long:    handbackDescription,
		Example: handbackExamples,
		Args:    cli.NoArguments,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd, Handback) },
	}
	f.addTo(cmd)
	cmd.Flags().StringVar(&f.SigningKeyFile, "signing-key-file", f.SigningKeyFile,
		"Private key `file` for kube-controller-manager to sign with, in a cluster that was made with ours and has never had another. Default: the one that our manifest names.")
	cmd.Flags().BoolVar(&f.SkipKeyCheck, "skip-key-check", f.SkipKeyCheck,
		"Go on although the key files that the two get back are not there or lack keys in use, and say which tokens are refused then.")
	return cmd
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/manifests/staticpod"
	"sa-controller-manager/manifests/takeover"
)

const takeoverDescription = `Replace the ServiceAccount controllers of kube-controller-manager and the ServiceAccount
plugin of kube-apiserver on this control-plane node, in steps: our static pod ("manager"), then
lines at the end of the two commands. Comments in their manifests are lost until a handback.

kube-apiserver v1.37 and newer reads our webhook from files of the node, and calls it before it
loses its plugin: it restarts twice. An older one keeps its plugin.

After a timeout the same command continues; "kubeadm handback" undoes everything. See docs/takeover.md.`

const takeoverExamples = `  # What would be done
  sa-controller-manager kubeadm takeover --dry-run

  # Take over, with one token Secret for every ServiceAccount, and sign kube-apiserver's tokens
  sa-controller-manager kubeadm takeover --token-secrets=auto --external-signer`

func newTakeoverCommand(p podFlags) *cobra.Command {
	f := newNodeFlags(takeover.StepManager, takeover.StepControllerManager, takeover.StepAPIServer)
	f.pod, f.Pod = &p, &p.Pod
	cmd := &cobra.Command{
		Use:     "takeover",
		Short:   "Take over from kube-controller-manager and kube-apiserver on this node",
		Long:    takeoverDescription,
		Example: takeoverExamples,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.takeOver(cmd) },
	}
	f.addTo(cmd)
	f.addTakeover(cmd.Flags())
	return cmd
}

func (f *nodeFlags) addTakeover(fs *pflag.FlagSet) {
	f.pod.addTo(fs)
	fs.BoolVar(&f.Reset, "reset", f.Reset, "Forget flags kept from earlier takeovers; derive all from the two manifests. "+
		"Implies --rewrite. --dry-run shows what goes.")
	fs.BoolVar(&f.ExternalSigner, "external-signer", f.ExternalSigner,
		"Have our process sign kube-apiserver's tokens, so that keys change without restarting it: "+
			"replaces its key flags by --service-account-signing-endpoint. Implies --rewrite.")
}

// takeOver reads what the last takeover has recorded, and takes over.
func (f *nodeFlags) takeOver(cmd *cobra.Command) error {
	f.Rewrite = f.pod.given(cmd.Flags()) || f.ExternalSigner || f.Reset
	if err := f.keep(cmd.Flags()); err != nil {
		return err
	}
	if err := cli.InvalidFlags(cmd.CommandPath(), f.pod.validate()); err != nil {
		return err
	}
	if f.OnlySigner = f.pod.only != ""; f.OnlySigner {
		f.ExternalSigner, f.steps = true, []string{takeover.StepManager, takeover.StepAPIServer}
		if len(f.Steps) == 0 {
			f.Steps = f.steps
		}
	}
	f.KeepPlugin = f.OnlySigner || staticpod.Command(f.Pod.ExtraArgs).Last(takeover.RegistrationFlag) != ""
	f.Pod.OtherVersion = f.Pod.Image != "" || f.Pod.Binary != f.pod.self
	return f.run(cmd, takeover.Run)
}

const handbackDescription = `Undo a takeover on this control-plane node: kube-apiserver gets its plugin back, then
kube-controller-manager its controllers; then the webhook is unregistered, and our static pod
ends. A manifest that has not been edited since the takeover becomes what it was before, byte
for byte. This works while kube-apiserver does not start, and whatever is wrong with our process.

The key files that the two components get back must hold the key that signs now and all keys
that verify. After a rotation they may not: the command then names the key and changes nothing.
See docs/rotation.md, and docs/uninstall.md for what remains.`

func newHandbackCommand() *cobra.Command {
	f := newNodeFlags(takeover.StepAPIServer, takeover.StepControllerManager, takeover.StepManager)
	cmd := &cobra.Command{
		Use:   "handback",
		Short: "Undo a takeover on this node",
		Long:  handbackDescription,
		RunE:  func(cmd *cobra.Command, _ []string) error { return f.run(cmd, takeover.Handback) },
	}
	f.addTo(cmd)
	cmd.Flags().BoolVar(&f.SkipKeyCheck, "skip-key-check", f.SkipKeyCheck,
		"Continue although the key files that the two components get back are missing or lack keys in use, and print what is refused then.")
	return cmd
}

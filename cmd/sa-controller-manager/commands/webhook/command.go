// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook implements the commands that switch the admission webhook off and on, that find
// the Pods admitted without it, and that write its configurations as files. They need no running
// manager.
package webhook

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
)

// switchTimeout limits the four requests of a command. A user who switches the webhook off in an
// emergency wants to know soon if that fails.
const switchTimeout = 30 * time.Second

const description = `Switch the admission webhook of a cluster off, or on again. It is registered in
a MutatingWebhookConfiguration and a ValidatingWebhookConfiguration, both called
` + registration.Name + `.

If the webhook refuses valid Pods, or does not answer:

  sa-controller-manager webhook unregister --kubeconfig=/etc/kubernetes/admin.conf

From then on kube-apiserver does not call it, and no replica registers it again.
The same with kubectl alone, if this program is not available:

  kubectl patch mutatingwebhookconfigurations,validatingwebhookconfigurations ` + registration.Name + ` \
    --type=merge -p '{"metadata":{"annotations":{"` + registration.Annotation + `":"` + registration.AnnotationOff + `"}},"webhooks":null}'

The annotation ` + registration.Annotation + `=` + registration.AnnotationOff + ` stops all writing as long as it is on
either object, also by itself:

  kubectl annotate mutatingwebhookconfigurations ` + registration.Name + ` \
    ` + registration.Annotation + `=` + registration.AnnotationOff + `

Objects that are deleted without it are created again.

Pods that are created while the webhook is off stay without account and token. To list
them once it is on again, with the commands that create them again:

  sa-controller-manager webhook missed --kubeconfig=/etc/kubernetes/admin.conf`

// onOff is one of the commands unregister and register.
type onOff struct {
	name, short, long string
	act               func(context.Context, kubernetes.Interface) error
	done              string // the message on success
}

func switches() []onOff {
	return []onOff{
		{
			name:  "unregister",
			short: "Switch the webhook off, and keep it off",
			long: "Empty both webhook configurations and annotate them with " + registration.Annotation + "=" + registration.AnnotationOff + ",\n" +
				"so that kube-apiserver does not call it and no replica registers it again. They are\n" +
				"created if they do not exist. New Pods are then admitted without the webhook.",
			act: registration.Unregister,
			done: "The webhook is off. " + registration.Name + ", the MutatingWebhookConfiguration and the\n" +
				"ValidatingWebhookConfiguration, has no webhooks and is annotated with\n" +
				registration.Annotation + "=" + registration.AnnotationOff + ". kube-apiserver may take a second to follow.\n" +
				"To switch it on again: " + options.ProgramName + " webhook register, with the same flags\n",
		},
		{
			name:  "register",
			short: "Switch the webhook on again after unregister",
			long: "Remove the annotation " + registration.Annotation + " from both webhook configurations. This command\n" +
				"writes no webhooks. The leader does, if it runs with --webhook-registration=url or\n" +
				"service, as soon as kube-apiserver has shown that it reaches it.",
			act: registration.Register,
			done: "The leader may register the webhook again: " + registration.Name + ", the\n" +
				"MutatingWebhookConfiguration and the ValidatingWebhookConfiguration, no longer has\n" +
				registration.Annotation + "=" + registration.AnnotationOff + ". It does so with --webhook-registration=url or service, once\n" +
				"kube-apiserver reaches it; its /readyz/webhook-registration shows the state.\n",
		},
	}
}

// NewCommand returns the command webhook with its subcommands.
func NewCommand(client cli.ClientFunc, write WriteManifestsFunc) *cobra.Command {
	var children []*cobra.Command
	for _, s := range switches() {
		children = append(children, s.command(client))
	}
	return cli.Parent(&cobra.Command{
		Use:   "webhook",
		Short: "Switch the admission webhook off and on, and find the Pods that it missed",
		Long:  description,
		Args:  cli.NoArguments,
	}, append(children, newMissedCommand(client), newManifestsCommand(write))...)
}

func (s onOff) command(client cli.ClientFunc) *cobra.Command {
	var o options.Connection
	cmd := &cobra.Command{
		Use:   s.name,
		Short: s.short,
		Long:  s.long,
		Args:  cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.run(cmd, client, &o)
		},
	}
	cli.AddConnectionFlags(cmd, &o)
	return cmd
}

func (s onOff) run(cmd *cobra.Command, client cli.ClientFunc, o *options.Connection) error {
	ctx, cancel := cli.AnswerWithin(cmd.Context(), switchTimeout)
	defer cancel()
	connected, err := client(o)
	if err != nil {
		return err
	}
	if err := s.act(ctx, connected); err != nil {
		return err
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), s.done)
	return err
}

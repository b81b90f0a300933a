// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook has the commands that take the admission webhook out of a cluster, let it in
// again, and find the Pods that it missed. They need no running manager.
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

// switchTimeout bounds the four requests of a webhook command. Whoever takes a webhook
// out is in a hurry, and wants to know soon that it has not worked.
const switchTimeout = 30 * time.Second

const description = `Take the admission webhook out of a cluster, or let it in again. It is registered in
a MutatingWebhookConfiguration and a ValidatingWebhookConfiguration, both called
` + registration.Name + `.

If the webhook refuses what it should not, or does not answer:

  sa-controller-manager webhook unregister --kubeconfig=/etc/kubernetes/admin.conf

From then on kube-apiserver does not call it, and no replica registers it again.
The same with kubectl alone, where this program is not at hand:

  kubectl patch mutatingwebhookconfigurations,validatingwebhookconfigurations ` + registration.Name + ` \
    --type=merge -p '{"metadata":{"annotations":{"` + registration.Annotation + `":"` + registration.AnnotationOff + `"}},"webhooks":null}'

The annotation ` + registration.Annotation + `=` + registration.AnnotationOff + ` stops all writing as long as it is on
either object, also by itself:

  kubectl annotate mutatingwebhookconfigurations ` + registration.Name + ` ` + registration.Annotation + `=` + registration.AnnotationOff + `

Objects that are deleted without it are made again.

Pods that are created while the webhook is out stay without account and token. To find
them once it is in again, and to have them created anew:

  sa-controller-manager webhook missed --kubeconfig=/etc/kubernetes/admin.conf`

// onOff is one of the two commands.
type onOff struct {
	name, short, long string
	act               func(context.Context, kubernetes.Interface) error
	done              string // what has been done, printed after it
}

func switches() []onOff {
	return []onOff{
		{
			name:  "unregister",
			short: "Take the webhook out, and keep it out",
			long: "Empty both webhook configurations and annotate them with " + registration.Annotation + "=" + registration.AnnotationOff + ",\n" +
				"so that kube-apiserver calls no webhook of ours and no replica registers one. They are\n" +
				"made if they do not exist. Pods are admitted then without what the webhook gives them.",
			act: registration.Unregister,
			done: "The webhook is out. " + registration.Name + ", the MutatingWebhookConfiguration and the\n" +
				"ValidatingWebhookConfiguration, holds no webhooks and is annotated with\n" +
				registration.Annotation + "=" + registration.AnnotationOff + ". kube-apiserver may take a second to notice.\n" +
				"Nobody registers it again before: " + options.ProgramName + " webhook register, with the same flags\n",
		},
		{
			name:  "register",
			short: "Let the webhook in again after unregister",
			long: "Remove the annotation " + registration.Annotation + " from both webhook configurations. This command\n" +
				"writes no webhook. The leader does, if it runs with --webhook-registration=url or\n" +
				"service, as soon as kube-apiserver has shown that it reaches it.",
			act: registration.Register,
			done: "The leader may register the webhook again: " + registration.Name + ", the\n" +
				"MutatingWebhookConfiguration and the ValidatingWebhookConfiguration, no longer says\n" +
				registration.Annotation + "=" + registration.AnnotationOff + ". It does so with --webhook-registration=url or service, once\n" +
				"kube-apiserver reaches it; its /readyz/webhook-registration says how far it is.\n",
		},
	}
}

// NewCommand is the break-glass of the webhook.
func NewCommand(client cli.ClientFunc) *cobra.Command {
	var children []*cobra.Command
	for _, s := range switches() {
		children = append(children, s.command(client))
	}
	return cli.Parent(&cobra.Command{
		Use:   "webhook",
		Short: "Take the admission webhook out, let it in again, find what it missed",
		Long:  description,
		Args:  cli.NoArguments,
	}, append(children, newMissedCommand(client))...)
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

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package webhook implements the commands of the webhook's registration: off, on, and as files. They need no running
// manager.
package webhook

import (
	"github.com/spf13/cobra"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/manifests"
)

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

kube-apiserver may have the webhook from files instead (--webhook-registration=static).
These are removed on each control-plane host, without any API:

  ` + onHost + `

Pods that are created while the webhook is off stay without account and token, unless
the policy ` + podpolicy.CompletionName + ` completes them.`

// onHost is the way out of files, with the directory of the takeover.
const onHost = options.ProgramName + " webhook unregister --" + options.StaticDirFlag + "=" + manifests.StaticDirectory

// NewCommand returns the command webhook with its subcommands.
func NewCommand(client cli.ClientFunc, write WriteManifestsFunc) *cobra.Command {
	var children []*cobra.Command
	for _, s := range switches() {
		children = append(children, s.command(client))
	}
	return cli.Parent(&cobra.Command{
		Use:   "webhook",
		Short: "Switch the admission webhook off and on",
		Long:  description,
	}, append(children, newManifestsCommand(write))...)
}

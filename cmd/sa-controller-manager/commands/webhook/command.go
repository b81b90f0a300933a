// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/manifests"
)

// switchTimeout limits the four requests of a command. A user who switches the webhook off in an
// emergency wants to know soon if that fails.
const switchTimeout = 30 * time.Second

// onOff is one of the commands unregister and register.
type onOff struct {
	name, short, long string
	act               func(context.Context, kubernetes.Interface) error
	done              string // the message on success
	// asks is what the user is asked on a terminal; nothing if it is empty.
	asks string
	// proves checks that it holds. Only then the policy for Pods gets the action.
	proves func(ctx context.Context, client kubernetes.Interface, flags string) error
	policy admissionregistrationv1.ValidationAction
	// static is act for the files of this host, and doneStatic its message.
	static     func(dir string) error
	doneStatic string
}

func switches() []onOff {
	return []onOff{
		{
			name:  "unregister",
			short: "Switch the webhook off, and keep it off",
			long: "Empty both webhook configurations and annotate them with " + registration.Annotation + "=" + registration.AnnotationOff +
				",\n" +
				"so that kube-apiserver does not call it and no replica registers it again. They are\n" +
				"created if they do not exist. New Pods are then admitted without the webhook, as a Pod\n" +
				"with dryRun shows: if kube-apiserver still calls it, by files, the code is 1.\n" +
				"The policy " + podpolicy.CompletionName + " goes on to complete ordinary Pods. Otherwise the\n" +
				"policy for Pods (" + podpolicy.Name + ") warns from then on instead of refusing Pods\n" +
				"without an account.\n" +
				"With --" + options.StaticDirFlag + " it removes the files of this host and keeps them away. That\n" +
				"needs no API and no running process, and leaves the policy as it is.\n" +
				"On a terminal the command asks for confirmation.",
			act:    registration.Unregister,
			asks:   consequence,
			proves: notCalled,
			policy: admissionregistrationv1.Warn,
			static: registration.UnregisterStatic,
			doneStatic: "The webhook is off on this host: its files are gone, and stay away until\n" +
				options.ProgramName + " webhook register with the same flag. Other hosts have files of their own.\n" +
				"The policy for Pods (" + podpolicy.Name + ") still refuses Pods without an account, until\n" +
				options.ProgramName + " webhook unregister without that flag makes it warn.\n",
			done: "The webhook is off. Both configurations named " + registration.Name + " are empty and have the annotation\n" +
				registration.Annotation + "=" + registration.AnnotationOff + ". kube-apiserver may take a second to follow.\n" +
				"To switch it on again: " + options.ProgramName + " webhook register, with the same flags\n",
		},
		{
			name:  "register",
			short: "Switch the webhook on again after unregister",
			long: "Remove the annotation " + registration.Annotation + " from both webhook configurations. This command\n" +
				"writes no webhooks. The leader does, if it runs with --webhook-registration=url or\n" +
				"service, as soon as kube-apiserver has shown that it reaches it. The command waits for that,\n" +
				"and makes the policy for Pods (" + podpolicy.Name + ") deny again; otherwise the code is 1.\n" +
				"With --" + options.StaticDirFlag + " it lets the process of this host write its files again.",
			act:    registration.Register,
			proves: calledAgain,
			policy: admissionregistrationv1.Deny,
			static: registration.RegisterStatic,
			doneStatic: "The process of this host writes its files again within ten seconds, and binds the webhook once\n" +
				"kube-apiserver reaches it; its /readyz/webhook-registration shows the state. If the policy for Pods\n" +
				"(" + podpolicy.Name + ") was made to warn, it still does: then, after all hosts,\n" +
				options.ProgramName + " webhook register without that flag.\n",
			done: "The webhook is registered again: " + registration.Name + ", the\n" +
				"MutatingWebhookConfiguration and the ValidatingWebhookConfiguration, no longer has\n" +
				registration.Annotation + "=" + registration.AnnotationOff + ". kube-apiserver calls it, and the policy for Pods\n" +
				"(" + podpolicy.Name + "), where it is installed, refuses those without an account again.\n",
		},
	}
}

func (s onOff) command(client cli.ClientFunc) *cobra.Command {
	var o options.Connection
	var dir string
	var yes, ifPlugin bool
	cmd := &cobra.Command{
		Use:   s.name,
		Short: s.short,
		Long:  s.long,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			var connected kubernetes.Interface
			if dir == "" {
				if connected, err = client(&o); err != nil {
					return err
				}
			} else if _, err = os.Stat(manifests.StaticDirs(dir)[0]); err != nil {
				return fmt.Errorf("--%s is not the manager's, which has %q: %w", options.StaticDirFlag, registration.StaticPaths(dir)[1:],
					err)
			}
			cli.WritesTo(cmd.ErrOrStderr(), &o)
			if s.asks != "" && !yes && !o.DryRun {
				fmt.Fprintln(cmd.ErrOrStderr(), s.asks+".")
				if sure, terminal := cli.Ask(cmd.Context(), cmd.InOrStdin(), cmd.ErrOrStderr(), "Switch it off?"); terminal && !sure {
					return errors.New("nothing was changed")
				}
			}
			done := s.doneStatic
			switch {
			case dir == "":
				done, err = s.done, s.run(cmd, connected, &o, ifPlugin)
			case !o.DryRun:
				err = s.static(dir)
			}
			if err != nil {
				return err
			}
			if o.DryRun {
				done = "Without --dry-run: " + done
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), done)
			return err
		},
	}
	cli.AddConnectionFlags(cmd, &o)
	cli.AddDryRun(cmd, &o)
	if s.asks != "" {
		cmd.Flags().BoolVar(&yes, "yes", yes, "Do not ask for confirmation.")
		cmd.Flags().BoolVar(&ifPlugin, "if-plugin-on", ifPlugin, "Change nothing while the plugin ServiceAccount of kube-apiserver is "+
			"off. Only for the manager's own ServiceAccount, which checks with a dry-run Pod.")
	}
	cmd.Flags().StringVar(&dir, options.StaticDirFlag, "",
		"Act on the files of this host in this `directory`, that of the manager, instead of the API.")
	cmd.MarkFlagsMutuallyExclusive("context", options.StaticDirFlag)
	return cmd
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiserveraccount "k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/admission/podpolicy"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/admission/trial"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/internal/await"
	"sa-controller-manager/internal/check"
)

// consequence is what unregister leads to.
const consequence = "Until it is on again, Pods that the policy " + podpolicy.CompletionName + " does not complete are admitted without " +
	"account, token, image pull secrets and limit on Secrets, unless the plugin ServiceAccount of kube-apiserver is on"

const (
	// followDelay is how long kube-apiserver may take to follow a change in the API.
	followDelay = 5 * time.Second

	// proofDelay is how long the leader may take to prove that kube-apiserver reaches it, and to bind.
	proofDelay = 20 * time.Second
)

// notCalled returns nil once kube-apiserver does not call the webhook, as a Pod with dryRun shows. What
// else refuses the Pod shows nothing.
func notCalled(ctx context.Context, client kubernetes.Interface, _ string) error {
	err := await.Poll{Timeout: followDelay}.Until(ctx, func(ctx context.Context) error {
		_, called, err := trial.Pod(ctx, client, metav1.NamespaceSystem)
		if registration.Concerns(err) {
			return fmt.Errorf("kube-apiserver still calls the webhook: %w", err)
		}
		if called {
			return errors.New("kube-apiserver still calls the webhook, which has answered a Pod with dryRun")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("the configurations in the API are switched off, but %w\n"+
			"The policy for Pods (%s) is as it was. If kube-apiserver has the webhook from files, on each control-plane\n"+
			"host, and then this command again:\n  %s", err, podpolicy.Name, onHost)
	}
	return nil
}

// calledAgain returns nil once kube-apiserver calls the webhook, and it gives a Pod its account. flags lead a command to
// that cluster.
func calledAgain(ctx context.Context, client kubernetes.Interface, flags string) error {
	err := await.Poll{Timeout: proofDelay}.Until(ctx, func(ctx context.Context) error {
		found, err := registration.Inspect(ctx, client)
		if err != nil {
			return err
		}
		if err := check.Error(trial.Findings(found), flags); err != nil {
			return err
		}
		_, findings, err := trial.Run(ctx, client, metav1.NamespaceSystem, true, false)
		return cmp.Or(err, check.Error(findings, flags))
	})
	if err != nil {
		return fmt.Errorf("the leader may register the webhook again, but yet %w\n"+
			"The policy for Pods (%s) is as it was. Run this again once /readyz/webhook-registration says registered; if the webhook\n"+
			"comes from files, on each control-plane host: %s webhook register --%s=DIRECTORY", err, podpolicy.Name,
			options.ProgramName, options.StaticDirFlag)
	}
	return nil
}

// policiesAreOurs returns an error for a policy for Pods that is there and wrong. Users may do without them.
func policiesAreOurs(ctx context.Context, client kubernetes.Interface) error {
	for _, policy := range []podpolicy.Policy{podpolicy.Refusal, podpolicy.Completion} {
		if exists, problem, err := policy.Problem(ctx, client); err != nil || exists && problem != "" {
			return cmp.Or(err, fmt.Errorf("the webhook is registered again, but %s", problem))
		}
	}
	return nil
}

// checkPlugin returns an error unless the plugin ServiceAccount of kube-apiserver is on, or the webhook is
// off already. It creates a Pod of its own account with dryRun, for which the webhook is not called.
func checkPlugin(ctx context.Context, client kubernetes.Interface) error {
	registered, err := registration.Inspect(ctx, client)
	if err != nil || slices.ContainsFunc(registered, func(one registration.Inspected) bool { return one.Off }) {
		return err
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("ask who is asking: %w", err)
	}
	namespace, name, err := apiserveraccount.SplitUsername(review.Status.UserInfo.Username)
	if err != nil {
		return fmt.Errorf("--if-plugin-on is for the ServiceAccount of the manager: %w", err)
	}
	pod := registration.ProbePod("plugin") // which no policy of ours completes
	pod.Spec.ServiceAccountName, pod.Spec.AutomountServiceAccountToken = name, new(true)
	pod, err = client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return fmt.Errorf("create a Pod in namespace %s with dryRun: %w", namespace, err)
	}
	if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Projected != nil }) {
		return errors.New("nothing was changed: the plugin ServiceAccount of kube-apiserver is off, so that Pods would get no token. " +
			"Start each kube-apiserver without --disable-admission-plugins=ServiceAccount first. To switch the webhook off all the same: " +
			"sa-controller-manager webhook unregister --yes --kubeconfig=admin.conf")
	}
	return nil
}

func (s onOff) run(cmd *cobra.Command, client kubernetes.Interface, o *options.Connection, ifPlugin bool) error {
	ctx, cancel := cli.AnswerWithin(cmd.Context(), switchTimeout)
	defer cancel()
	if ifPlugin {
		if err := checkPlugin(ctx, client); err != nil {
			return err
		}
	}
	if err := s.act(ctx, client); err != nil {
		return err
	}
	if o.DryRun {
		return nil
	}
	if err := s.proves(ctx, client, cli.ClusterFlags(*o)); err != nil {
		return err
	}
	if err := podpolicy.SetAction(ctx, client, s.policy); err != nil || s.policy == admissionregistrationv1.Warn {
		return err
	}
	return policiesAreOurs(ctx, client)
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/uuid"

	"sa-controller-manager/admission/podscan"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/admission/serviceaccount"
)

const (
	mendWebhook = "look into the log and /readyz/webhook-registration of the leader; " + lastResort
	lastResort  = "if Pods cannot wait: sa-controller-manager webhook unregister --kubeconfig=/etc/kubernetes/admin.conf"
)

// checkWebhook looks at the registration and has a Pod created with dryRun. Without any
// registration kube-apiserver's own plugin may do the work, and then nothing is wrong.
func checkWebhook(ctx context.Context, c *Cluster) (Answer, error) {
	registered, err := registration.Inspect(ctx, c.Client)
	if err != nil {
		return Answer{}, err
	}
	answer := Answer{Findings: badRegistration(registered), Note: "not registered"}
	without, unknown := registration.HostsWithoutReplica(ctx, c.Client, c.Clock.Now())
	answer.Findings = append(answer.Findings, badHosts(without, bothBound(registered))...)
	// That the hosts are not known says nothing about this Pod.
	tried, err := tryPod(ctx, c, bothBound(registered))
	if bothBound(registered) {
		answer.Note = "kube-apiserver calls it"
	}
	answer.Findings = append(answer.Findings, tried...)
	return answer, errors.Join(unknown, err)
}

func bothBound(registered []registration.Inspected) bool {
	return !slices.ContainsFunc(registered, func(one registration.Inspected) bool { return !one.Active })
}

// badRegistration finds what is neither bound nor absent. If there is no configuration
// at all, that is how somebody wants it.
func badRegistration(registered []registration.Inspected) []Finding {
	var findings []Finding
	anyExists := slices.ContainsFunc(registered, func(one registration.Inspected) bool { return one.Exists })
	for _, one := range registered {
		switch {
		case one.Off:
			findings = append(findings, found(
				fmt.Sprintf("the %s %s is switched off by the annotation %s=%s", one.Kind, registration.Name, registration.Annotation, registration.AnnotationOff),
				"sa-controller-manager webhook register --kubeconfig=/etc/kubernetes/admin.conf, once the reason for which somebody has switched it off is gone"))
		case one.Exists && !one.Active:
			findings = append(findings, found(fmt.Sprintf("the %s %s binds no webhook yet: kube-apiserver has not proved that it reaches it", one.Kind, registration.Name), mendWebhook))
		case !one.Exists && anyExists:
			findings = append(findings, found(fmt.Sprintf("there is no %s %s beside the other configuration", one.Kind, registration.Name), mendWebhook))
		}
	}
	return findings
}

// badHosts finds kube-apiservers that call a replica on their own host where there is none.
func badHosts(hosts []string, bound bool) []Finding {
	if len(hosts) == 0 {
		return nil
	}
	outcome := "has nobody to call: the webhook does not bind before it has"
	if bound {
		outcome = "refuses Pods"
	}
	problem := fmt.Sprintf("no replica sends a heartbeat from %s, and kube-apiserver there %s", strings.Join(hosts, ", "), outcome)
	return []Finding{found(problem, "start sa-controller-manager there, with the same --webhook-port; "+lastResort)}
}

// tryPod has a Pod created with dryRun, and looks at what comes back.
func tryPod(ctx context.Context, c *Cluster, bound bool) ([]Finding, error) {
	account, err := c.Client.CoreV1().ServiceAccounts(c.Namespace).Get(ctx, "default", metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read service account %s/default, which a trial Pod gets: %w", c.Namespace, err)
	}
	covered, err := c.covered(ctx)
	if err != nil {
		return nil, err
	}
	id := string(uuid.NewUUID())
	pod, err := c.Client.CoreV1().Pods(c.Namespace).Create(ctx, registration.ProbePod(id), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if registration.Concerns(err) {
		return []Finding{found(fmt.Sprintf("a Pod in namespace %s is refused: %v", c.Namespace, err), mendWebhook)}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("create a Pod in namespace %s with dryRun: %w", c.Namespace, err)
	}
	return badPod(c.Plugin, pod, account, bound && covered && !registration.Answered(pod, id)), nil
}

// covered reports whether the registration excludes the namespace of the trial.
func (c *Cluster) covered(ctx context.Context) (bool, error) {
	selector, err := registration.NamespaceSelector(ctx, c.Client)
	if err != nil || selector.Empty() {
		return err == nil, err
	}
	namespace, err := c.Client.CoreV1().Namespaces().Get(ctx, c.Namespace, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("read namespace %s: %w", c.Namespace, err)
	}
	return selector.Matches(labels.Set(namespace.Labels)), nil
}

// badPod judges what came back by the plugin's own rules.
func badPod(config serviceaccount.Config, pod *corev1.Pod, account *corev1.ServiceAccount, unanswered bool) []Finding {
	if unanswered {
		return []Finding{found("kube-apiserver admits Pods without calling the webhook, or reaches somebody else there, though it is registered", mendWebhook)}
	}
	owed := config.Owed(pod, account)
	var lacking string
	switch {
	case owed.Account:
		lacking = "account"
	case owed.Token && !owed.Served:
		lacking = "token"
	default:
		return nil
	}
	return []Finding{found("a new Pod gets no "+lacking+": neither the webhook nor kube-apiserver's plugin ServiceAccount gives it one",
		"start the program with --webhook-registration=url (or service), or kube-apiserver without --disable-admission-plugins=ServiceAccount; then: sa-controller-manager webhook missed --kubeconfig=/etc/kubernetes/admin.conf")}
}

// checkMissed finds Pods without account or token.
func checkMissed(ctx context.Context, c *Cluster) (Answer, error) {
	all, err := podscan.Finder{Client: c.Client, Config: c.Plugin}.Find(ctx, metav1.NamespaceAll)
	if err != nil {
		return Answer{}, fmt.Errorf("look for Pods that were admitted without the webhook: %w", err)
	}
	answer := Answer{Note: fmt.Sprintf("%s, %d uncertain", count(all.Looked, "Pod", "Pods"), len(all.Uncertain))}
	if len(all.Missed) == 0 {
		return answer, nil
	}
	var names []string
	for i := range all.Missed {
		names = append(names, all.Missed[i].String())
	}
	answer.Findings = []Finding{found(count(len(names), "Pod was", "Pods were")+" admitted without the webhook and without an account or token",
		"sa-controller-manager webhook missed --kubeconfig=/etc/kubernetes/admin.conf lists them, and what to type to have them created again", names...)}
	return answer, nil
}

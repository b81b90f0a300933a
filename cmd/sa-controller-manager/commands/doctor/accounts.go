// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm"
	"sa-controller-manager/internal/accounttemplate"
	"sa-controller-manager/internal/paging"
)

const accountsCheck = "accounts"

// checkAccounts compares accounts with --account-template, and finds the default accounts whose
// token every Pod of their namespace gets. Most clusters have these, so they are no finding unless a
// template is given or the check is asked for.
func checkAccounts(ctx context.Context, c *cluster) (answer, error) {
	if c.Template == nil && !c.AccountsAsked {
		return answer{Note: "nothing to compare: no --account-template; --only=" + accountsCheck + " lists the default accounts that mount tokens"}, nil
	}
	labels, err := c.namespaceLabels(ctx)
	if err != nil {
		return answer{}, err
	}
	differs := found("account-differs", "accounts that differ from --account-template, which changes no existing ones",
		"check that nothing depends on the difference, and run the commands")
	mounts := found("default-account-mounts", "default accounts whose token every Pod mounts that does not opt out (CIS 5.1.5, 5.1.6)",
		"give the Pods that need a token an account of their own, and run the commands; new Pods are affected")
	seen := 0
	list := c.Client.CoreV1().ServiceAccounts(metav1.NamespaceAll).List
	err = paging.Each(ctx, "ServiceAccounts", list, metav1.ListOptions{}, func(page *corev1.ServiceAccountList) error {
		seen += len(page.Items)
		for i := range page.Items {
			account := &page.Items[i]
			if of, live := labels[account.Namespace]; live && c.Clock.Since(account.CreationTimestamp.Time) > c.Grace {
				c.compareAccount(account, of, &differs, &mounts)
			}
		}
		return nil
	})
	result := answer{Note: fmt.Sprintf("accounts: %d", seen)}
	for _, finding := range []finding{differs, mounts} {
		if len(finding.Objects) > 0 {
			result.Findings = append(result.Findings, finding)
		}
	}
	if err != nil || c.Template == nil {
		return result, err
	}
	second, err := c.accountsElsewhere(ctx)
	result.Findings = append(result.Findings, second...)
	return result, err
}

// namespaceLabels returns the labels of the namespaces that are not being deleted.
func (c *cluster) namespaceLabels(ctx context.Context) (map[string]map[string]string, error) {
	labels := map[string]map[string]string{}
	return labels, paging.Each(ctx, "namespaces", c.Client.CoreV1().Namespaces().List, metav1.ListOptions{}, func(page *corev1.NamespaceList) error {
		for i := range page.Items {
			if page.Items[i].DeletionTimestamp == nil {
				labels[page.Items[i].Name] = page.Items[i].Labels
			}
		}
		return nil
	})
}

// compareAccount adds an account to the findings about it. The template decides whether a default
// account may mount tokens, if it says so.
func (c *cluster) compareAccount(account *corev1.ServiceAccount, labels map[string]string, differs, mounts *finding) {
	wanted := accounttemplate.Fields{}
	if slices.Contains(c.AccountNames, account.Name) {
		wanted = c.Template.For(account.Namespace, account.Name, labels)
	}
	name := account.Namespace + "/" + account.Name
	if account.Name == "default" && wanted.AutomountServiceAccountToken == nil && ptr.Deref(account.AutomountServiceAccountToken, true) {
		mounts.Objects = append(mounts.Objects, name)
		mounts.Commands = append(mounts.Commands, c.patchAccount(account, accounttemplate.Fields{AutomountServiceAccountToken: new(false)}))
	}
	if lacking, which := wanted.Lacking(account); len(which) > 0 {
		differs.Objects = append(differs.Objects, name+" ("+strings.Join(which, " ")+")")
		differs.Commands = append(differs.Commands, c.patchAccount(account, lacking))
	}
}

// patchAccount returns a command. A strategic merge keeps what else the account has.
func (c *cluster) patchAccount(account *corev1.ServiceAccount, fields accounttemplate.Fields) string {
	patch := map[string]any{}
	if fields.AutomountServiceAccountToken != nil {
		patch["automountServiceAccountToken"] = *fields.AutomountServiceAccountToken
	}
	if len(fields.ImagePullSecrets) > 0 {
		patch["imagePullSecrets"] = fields.ImagePullSecrets
	}
	if len(fields.Labels)+len(fields.Annotations) > 0 {
		patch["metadata"] = metav1.ObjectMeta{Labels: fields.Labels, Annotations: fields.Annotations}
	}
	text, err := json.Marshal(patch)
	if err != nil {
		panic(err) // strings and booleans can be encoded
	}
	// Only strings can have a quote, and there it may be written like this.
	quoted := strings.ReplaceAll(string(text), "'", `\u0027`)
	return fmt.Sprintf("kubectl --namespace=%s patch serviceaccount %s --patch='%s'%s", account.Namespace, account.Name, quoted, c.Kubeconfig)
}

// accountsElsewhere finds kube-controller-managers that create accounts too, and may be the first.
func (c *cluster) accountsElsewhere(ctx context.Context) ([]finding, error) {
	pods, err := c.Client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the Pods of kube-system: %w", err)
	}
	_, managers := kubeadm.Stock(pods.Items)
	managers = slices.DeleteFunc(managers, func(one string) bool { return !strings.Contains(one, options.ServiceAccountController) })
	if len(managers) == 0 {
		return nil, nil
	}
	return []finding{found("accounts-without-template", "kube-controller-managers that create accounts too, without --account-template",
		"start them with --controllers=*,-"+options.ServiceAccountController+"; kubeadm takeover does that", managers...)}, nil
}

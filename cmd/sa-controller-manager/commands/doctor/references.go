// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/paging"
)

// checkReferences finds the entries of accounts' secrets lists that name no Secret, and that no
// token controller removes, because a user may have written them before the Secret.
func checkReferences(ctx context.Context, c *cluster) (answer, error) {
	secrets, err := c.tokenSecrets(ctx)
	if err != nil {
		return answer{}, err
	}
	known := sets.New[cache.ObjectName]()
	for _, secret := range secrets {
		known.Insert(secret.ObjectName())
	}
	accounts := 0
	var objects, commands []string
	list := c.Client.CoreV1().ServiceAccounts(metav1.NamespaceAll).List
	err = paging.Each(ctx, "ServiceAccounts", list, metav1.ListOptions{}, func(page *corev1.ServiceAccountList) error {
		for i := range page.Items {
			account := &page.Items[i]
			if !c.settled(account.ObjectMeta) {
				continue
			}
			accounts++
			missing, err := c.missingReferences(ctx, account, known)
			if err != nil {
				return err
			}
			if len(missing) > 0 {
				objects = append(objects, fmt.Sprintf("%s/%s (%s)", account.Namespace, account.Name, strings.Join(missing, " ")))
				commands = append(commands, c.removeReferences(account, missing))
			}
		}
		return nil
	})
	if accounts == 0 && err == nil {
		return skipped(fmt.Sprintf("no accounts older than %s", c.Grace)), nil
	}
	result := answer{Note: fmt.Sprintf("%d accounts", accounts)}
	if len(objects) > 0 {
		result.Findings = []finding{found("unattributed-reference",
			"accounts list Secrets that do not exist; no token controller removes entries that it has not written", referencesRemedy(commands),
			objects...)}
	}
	return result, err
}

// missingReferences asks kube-apiserver for Secrets of other types, which a list may name, too.
func (c *cluster) missingReferences(ctx context.Context, account *corev1.ServiceAccount,
	known sets.Set[cache.ObjectName]) ([]string, error) {
	var failed error
	missing := tokensecrets.UnattributedReferences(account, func(name string) bool {
		secret := cache.NewObjectName(account.Namespace, name)
		// An invalid name must get neither into a request nor into a shell command.
		if failed != nil || known.Has(secret) || len(validation.IsDNS1123Subdomain(name)) > 0 {
			return true
		}
		live, err := tokensecrets.LiveSecret(ctx, c.Client, secret)
		failed = err
		return live != nil
	})
	return missing, failed
}

func (c *cluster) removeReferences(account *corev1.ServiceAccount, names []string) string {
	var entries []string
	for _, name := range names {
		entries = append(entries, fmt.Sprintf(`{"$patch":"delete","name":%q}`, name))
	}
	return fmt.Sprintf("kubectl --namespace=%s patch serviceaccount %s --patch='{\"secrets\":[%s]}'%s", account.Namespace, account.Name,
		strings.Join(entries, ","), c.Kubeconfig)
}

// referencesRemedy has the whole command for the first account: names of Secrets differ.
func referencesRemedy(commands []string) string {
	remedy := "create the Secret, or remove the entry: " + commands[0]
	if len(commands) > 1 {
		remedy += "; likewise for the others"
	}
	return remedy
}

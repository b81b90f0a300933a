// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package idle

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

// populate makes what both have to keep in mind, and returns once the last Secret is
// filled.
func populate(ctx context.Context, cluster *devcluster.Cluster, objects int) error {
	client, err := cluster.Client()
	if err != nil {
		return err
	}
	const name, account = "mine", "default"
	for i := range objects {
		namespace := fmt.Sprintf("idle-%04d", i)
		if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create namespace %s: %w", namespace, err)
		}
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: account}},
			Type:       corev1.SecretTypeServiceAccountToken,
		}
		if _, err := await.ServiceAccounts(ctx, client, namespace, func(accounts []*corev1.ServiceAccount) error {
			if _, ok := await.Find(accounts, account); !ok {
				return fmt.Errorf("namespace %s has no account %s", namespace, account)
			}
			return nil
		}); err != nil {
			return err
		}
		if _, err := client.CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create a token Secret in namespace %s: %w", namespace, err)
		}
		if i < objects-1 {
			continue
		}
		if _, err := await.Secrets(ctx, client, namespace, func(secrets []*corev1.Secret) error {
			if found, ok := await.Find(secrets, name); !ok || len(found.Data[corev1.ServiceAccountTokenKey]) == 0 {
				return errors.New("the last Secret is not filled")
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

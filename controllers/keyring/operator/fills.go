// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/tokens"
)

// probe is the Secret that is filled. The name is always the same, so that one that is left is deleted by the next command.
const probe = "sa-controller-manager-key-probe"

// fillTimeout is how long a Secret may stay empty. Another kube-controller-manager leads within 15 s.
const fillTimeout = 20 * time.Second

// kubeControllerManager is its field manager and its Lease, which stays when it is down.
const kubeControllerManager = "kube-controller-manager"

// fills returns the token controller that leads, by the key that it signs the tokens of Secrets with. kube-controller-manager
// may do that with another key: it reads its key file at its start, so what it has written says more than the file. A dry
// run asks no kube-apiserver, because a Secret is made. If kube-controller-manager does not answer, an error says so.
func (o *Operator) fills(ctx context.Context) (map[string]string, error) {
	if o.Cluster == nil || o.File.IsDryRun() {
		return nil, nil
	}
	o.Progress("which key a token controller signs the token of a Secret with", fillTimeout)
	keyID, name, err := ask(ctx, o.Cluster.Client, o.Cluster.Namespace, o.Cluster.Account)
	if err != nil || name != "" {
		return map[string]string{keyID: name}, err
	}
	_, err = o.Cluster.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, kubeControllerManager, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err): // there is no other token controller
		err = nil
	case err == nil:
		err = ring.Refuse(fmt.Sprintf("no token controller has filled a Secret within %s, and %s may sign the tokens of Secrets with a "+
			"key of its own", fillTimeout, kubeControllerManager), "run the command again once it does")
	}
	return nil, err
}

// SignsRevoked returns an error if the token controller that leads signs with a revoked key: ours follows the published rings,
// and kube-controller-manager the key file that it had at its start. While no key is revoked none is asked.
func (o *Operator) SignsRevoked(ctx context.Context) error {
	published, err := hosts.Fetch(ctx, o.Cluster.Client)
	if err != nil || len(published.Removed) == 0 {
		return err
	}
	signers, err := o.fills(ctx)
	for keyID, name := range signers {
		if published.RevokedID(keyID) && !strings.HasPrefix(name, meta.FieldManager) {
			err = ring.Refuse(fmt.Sprintf("%s signs the tokens of Secrets with key %s, which is revoked", name, keyID),
				"give it another key there and on each other host (keys export --kubeadm), restart it, and run the command again")
		}
	}
	return err
}

// heldFindings are about the token Secrets of revoked keys, which uses counts by key ID: only we fill them again by ourselves.
func heldFindings(uses map[string]int, revoked ring.Revocations) (findings []check.Finding) {
	for _, gone := range revoked {
		if count := uses[gone.ID]; count > 0 {
			findings = append(findings, check.Key(check.RevokedHeld, check.KeyArgs{Key: gone.ID, Why: strconv.Itoa(count)}).Finding)
		}
	}
	return findings
}

// ask has the token controller that leads fill a Secret of an account, and deletes that again. name is "" if none has filled
// it within fillTimeout.
func ask(ctx context.Context, client kubernetes.Interface, namespace, account string) (keyID, name string, err error) {
	const what = "see with which key the token controller signs"
	limited, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	secrets := client.CoreV1().Secrets(namespace)
	// An old one is of a command that was killed. If it stays, Create says so.
	left, err := secrets.Get(limited, probe, metav1.GetOptions{})
	if err == nil && time.Since(left.CreationTimestamp.Time).Abs() > fillTimeout {
		_ = secrets.Delete(limited, probe, *metav1.NewPreconditionDeleteOptions(string(left.UID)))
	}
	secret, err := secrets.Create(limited, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: probe, Annotations: map[string]string{corev1.ServiceAccountNameKey: account}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{FieldManager: meta.FieldManager})
	if err != nil {
		return "", "", fmt.Errorf("%s: create a token Secret, which another command may have there for %s: %w", what, fillTimeout, err)
	}
	defer func() {
		deleting, cancel := context.WithTimeout(context.WithoutCancel(ctx), fillTimeout)
		defer cancel()
		if stays := secrets.Delete(deleting, probe, *metav1.NewPreconditionDeleteOptions(string(secret.UID))); err == nil && stays != nil {
			err = fmt.Errorf("delete secret %s/%s, whose token is valid while it exists: %s", namespace, probe, stays.Error())
		}
	}()
	changes, err := secrets.Watch(limited, metav1.SingleObject(secret.ObjectMeta))
	if err != nil {
		return "", "", fmt.Errorf("%s: watch a token Secret: %w", what, err)
	}
	defer changes.Stop()
	for len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
		changed, open := <-changes.ResultChan()
		switch now, is := changed.Object.(*corev1.Secret); {
		case !open && limited.Err() == nil:
			return "", "", fmt.Errorf("%s: kube-apiserver has ended the watch: run this again", what)
		case !open:
			return "", "", context.Cause(ctx)
		case changed.Type == watch.Deleted:
			return "", "", fmt.Errorf("%s: another command asks, too, and has deleted our Secret: run this again", what)
		case is:
			secret = now
		}
	}
	token, err := tokens.Inspect(string(secret.Data[corev1.ServiceAccountTokenKey]))
	return token.KeyID, leading(ctx, client, secret), err
}

// leading returns the field manager that has filled a Secret, and the host on which it leads, if its Lease has the usual name.
func leading(ctx context.Context, client kubernetes.Interface, secret *corev1.Secret) string {
	name := "a token controller"
	for _, entry := range secret.ManagedFields {
		if entry.FieldsV1 != nil && strings.Contains(entry.FieldsV1.GetRawString(), `"f:`+corev1.ServiceAccountTokenKey+`"`) {
			name = entry.Manager
		}
	}
	lease, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return name
	}
	host, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return name + " on host " + host
}

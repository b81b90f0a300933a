// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// checkContent verifies all of a token Secret but the token itself.
func (d *tokens) checkContent(secret *corev1.Secret, uid types.UID) error {
	rootCA, err := os.ReadFile(d.cluster.CAFile())
	if err != nil {
		return err
	}
	switch {
	case len(secret.Data) != 3:
		return fmt.Errorf("%d keys in the data of secret %s", len(secret.Data), secret.Name)
	case !bytes.Equal(secret.Data[corev1.ServiceAccountRootCAKey], rootCA):
		return errors.New("another ca.crt than the root CA file of the manager")
	case string(secret.Data[corev1.ServiceAccountNamespaceKey]) != namespace:
		return fmt.Errorf("namespace %q in the data", secret.Data[corev1.ServiceAccountNamespaceKey])
	case secret.Annotations[corev1.ServiceAccountUIDKey] != string(uid):
		return fmt.Errorf("UID %q in the annotations, the account has %q", secret.Annotations[corev1.ServiceAccountUIDKey], uid)
	}
	d.Notef("data", "token, ca.crt (the root CA) and namespace are in place, the account's UID is annotated")
	return nil
}

// checkUser verifies name, UID and groups. kube-apiserver adds its own groups, such as
// system:authenticated.
func (d *tokens) checkUser(info authenticationv1.UserInfo) error {
	d.Notef("user", "%s, uid %s", info.Username, info.UID)
	d.Notef("groups", "%s", strings.Join(info.Groups, ", "))
	if info.Username != user || info.UID != string(d.account.UID) {
		return fmt.Errorf("another user than %s, uid %s", user, d.account.UID)
	}
	for _, group := range []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace} {
		if !slices.Contains(info.Groups, group) {
			return fmt.Errorf("not in group %s", group)
		}
	}
	return nil
}

// warnings prints the warnings of kube-apiserver, each once in a row.
type warnings struct {
	*printer

	last string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	if text != w.last {
		w.last = text
		w.Notef("warning", "%s", text)
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/preflight"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

// TestEveryVerb takes each verb of each part away from a user who has nothing but the
// roles of that part: what is missing is that and nothing else.
func TestEveryVerb(t *testing.T) {
	w := newWorld(t)
	parts := map[preflight.Part][]preflight.Rule{
		"unusual": rulesOf(t, "--controllers=-*", "--external-signer-socket=/run/signer.sock", "--webhook-port=0", "--secure-port=0"),
	}
	for _, rule := range slices.Concat(preflight.StandardRules(options.New()), preflight.OptionalRules()) {
		parts[rule.Part] = append(parts[rule.Part], rule)
	}
	for part, rules := range parts {
		t.Run(string(part), func(t *testing.T) {
			t.Parallel()
			user := w.identity(t, string(part))
			user.grant(t, rules, preflight.Access{})
			tried := 0
			for _, access := range preflight.Accesses(rules) {
				if covered(access, preflight.Accesses(rules)) {
					continue
				}
				user.grant(t, rules, access)
				tried++
			}
			if tried == 0 {
				t.Error("nothing could be taken away")
			}
		})
	}
}

// covered reports whether something wider grants the access as well.
func covered(access preflight.Access, all []preflight.Access) bool {
	for _, wider := range all {
		if wider == access {
			continue
		}
		narrowed := access
		if wider.Name == "" {
			narrowed.Name = ""
		}
		if wider.Namespace == "" {
			narrowed.Namespace = ""
		}
		if narrowed == wider {
			return true
		}
	}
	return false
}

// TestProcessSaysWhatIsMissing runs the whole process with one verb short: it names the
// verb, is not ready, and does not end.
func TestProcessSaysWhatIsMissing(t *testing.T) {
	await.Long(t)
	w, binary := newWorld(t), findBinary(t)
	rules := rulesOf(t, "--controllers=serviceaccount,serviceaccount-token", "--token-secrets=manual",
		"--service-account-private-key-file=sa.key", "--service-account-issuer=issuer", "--webhook-port=0", "--secure-port=0")
	user := w.identity(t, "short")
	for _, access := range preflight.Accesses(rules) {
		t.Run(access.String(), func(t *testing.T) {
			if covered(access, preflight.Accesses(rules)) {
				t.Fatal("a wider rule grants this too")
			}
			user.grant(t, rules, access)
			manager := w.start(t, binary, user, "--controllers=serviceaccount,serviceaccount-token")
			awaitLog(t, manager, `"Permissions are missing, retrying until they are granted" err="may not `+access.String()+`"`)
			awaitLog(t, manager, `"Apply this to grant the missing permissions" yaml=`)
			if _, err := manager.Get(t.Context(), "/readyz"); err == nil || !strings.Contains(err.Error(), "may not: "+access.String()) {
				t.Errorf("/readyz says %v, want it to name what is missing", err)
			}
			if exit, err := manager.Stop(); err != nil || exit.Code != 0 {
				t.Errorf("ended with code %d, %v; want 0", exit.Code, err)
			}
		})
	}
}

// TestGrantedLater: what is granted while the process runs is used without a restart,
// and what is missing holds up nobody else.
func TestGrantedLater(t *testing.T) {
	w, binary := newWorld(t), findBinary(t)
	rules := preflight.StandardRules(options.New())
	user := w.identity(t, "later")
	missing := preflight.Access{Verb: "patch", Resource: "secrets"}
	user.grant(t, rules, missing)
	manager := w.start(t, binary, user)
	awaitLog(t, manager, "may not patch secrets")
	w.awaitAccount(t)
	secret := w.createTokenSecret(t)

	user.grant(t, rules, preflight.Access{})
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := manager.Ready(ctx); err != nil {
		t.Fatalf("%v\n%s", err, manager.LogTail(20))
	}
	awaitLog(t, manager, "All permissions are granted now")
	if _, err := await.Secrets(ctx, w.admin, "default", filled(secret)); err != nil {
		t.Error(err)
	}
}

// TestIdentityOfKCM: controller-manager.conf is what people try first.
func TestIdentityOfKCM(t *testing.T) {
	w, binary := newWorld(t), findBinary(t)
	manager := w.start(t, binary, w.identity(t, "system:kube-controller-manager"))
	awaitLog(t, manager, "patch secrets")
	awaitLog(t, manager, "this is the identity of kube-controller-manager (controller-manager.conf)")
	awaitLog(t, manager, "sa-controller-manager kubeadm kubeconfig")
	if logs := manager.Logs(); strings.Contains(logs, "name: system:kube-controller-manager") {
		t.Errorf("the log shows how to widen the permissions of kube-controller-manager:\n%s", logs)
	}
}

func findBinary(t *testing.T) devcluster.Binary {
	t.Helper()
	binary, err := devcluster.FindBinary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

func (w *world) start(t *testing.T, binary devcluster.Binary, user *identity, flags ...string) *devcluster.Manager {
	t.Helper()
	manager, err := binary.StartManager(w.Cluster, append(flags,
		"--kubeconfig="+user.kubeconfig, "--leader-elect=true", "--token-secrets=manual")...)
	if err != nil {
		t.Fatal(err)
	}
	return manager
}

func awaitLog(t *testing.T, manager *devcluster.Manager, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := manager.AwaitLog(ctx, text); err != nil {
		t.Fatalf("%v\n%s", err, manager.LogTail(40))
	}
}

func (w *world) awaitAccount(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	_, err := await.ServiceAccounts(ctx, w.admin, "default", func(accounts []*corev1.ServiceAccount) error {
		if len(accounts) == 0 {
			return errors.New("no account")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// filled reports whether the Secret has a token.
func filled(name string) await.Check[*corev1.Secret] {
	return func(secrets []*corev1.Secret) error {
		for _, secret := range secrets {
			if secret.Name == name && len(secret.Data[corev1.ServiceAccountTokenKey]) > 0 {
				return nil
			}
		}
		return fmt.Errorf("secret %s has no token", name)
	}
}

func (w *world) createTokenSecret(t *testing.T) string {
	t.Helper()
	secret, err := w.admin.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "mine", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return secret.Name
}

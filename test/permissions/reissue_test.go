// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"sa-controller-manager/cmd/sa-controller-manager/app/permissions"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
	"sa-controller-manager/signing/testkeys"

	"sa-controller-manager/test/integration/testcluster"
)

// TestReissue runs a whole re-issue with what the part token is granted, and nothing else.
func TestReissue(t *testing.T) {
	t.Parallel()
	// What kube-apiserver does not accept is not re-issued with.
	next := filepath.Join(t.TempDir(), "next.key")
	testutil.Must(t, os.WriteFile(next, testkeys.P256(), 0o600))
	w := newWorld(t, next)
	path := filepath.Join(t.TempDir(), "ring.json")
	initial, err := signing.ParsePrivateKey(testcluster.ReadFile(t, w.SigningKeyFile()))
	testutil.Must(t, err)
	second := ring.KeyOf(testkeys.Parse(testkeys.P256()))
	testutil.Must(t, ring.At(path).Init(initial, nil, &second, time.Now()))
	rules := rulesOf(t, "--controllers=serviceaccount,serviceaccount-token", "--service-account-key-ring=ring.json",
		"--webhook-port=0", "--secure-port=0")
	user := w.identity(t, "rotating")
	user.grant(t, rules, permissions.Access{})
	flag := "--service-account-key-ring=" + path
	manager := w.start(t, user, "--controllers=serviceaccount,serviceaccount-token", "--service-account-private-key-file=", flag)
	awaitLog(t, manager, "Published the key ring")
	w.AwaitAccounts(t, "default", "default")
	// The account names the Secret, so its successor has to be named as well.
	w.CreateAccount(t, "default", "app", "mine")
	w.CreateSecret(t, testcluster.TokenSecret("default", "mine", "app"))
	w.AwaitFilled(t, "default", "mine")
	w.PatchSecret(t, "default", "mine", `{"metadata":{"annotations":{"sa-controller-manager/reissue":"side-by-side"}}}`)
	testcluster.Run(t, "", "keys", "rotate", "--wait", "--cache-age=0s", flag, "--kubeconfig="+w.Kubeconfig()).ExpectCode(t, 0)
	awaitLog(t, manager, `"Re-issued token secret"`)
	if _, err := manager.Get(t.Context(), "/readyz"); err != nil {
		t.Error(err)
	}
	if exit, err := manager.Stop(); err != nil || exit.Code != 0 {
		t.Errorf("ended with code %d, %v; want 0", exit.Code, err)
	}
}

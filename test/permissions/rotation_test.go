// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package permissions

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"sa-controller-manager/cmd/sa-controller-manager/app/permissions"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// TestRotation rotates by policy, from start to prune, with what that is granted, and nothing else.
func TestRotation(t *testing.T) {
	ring := filepath.Join(t.TempDir(), "ring.json")
	flags := []string{
		"--service-account-private-key-file=", "--service-account-key-ring=" + ring, "--token-secrets=manual", "--leader-elect=false",
		"--rotate-every=4s", "--cache-age=1s", "--hold-down=0s", "--longest-token-lifetime=5s",
	}
	testcluster.Run(t, "", "keys", "init", "--algorithm=P-256", flags[1]).ExpectCode(t, 0)
	const user = "rotating"
	binary := testcluster.Binary(t)
	var manager *devcluster.Manager
	w := &world{testcluster.New(t, devcluster.Options{ExternalSigner: true, BeforeAPIServer: func(c *devcluster.Cluster) error {
		kubeconfig, _, err := c.Identity(user)
		testutil.Must(t, err)
		flags = append(flags, "--kubeconfig="+kubeconfig, "--external-signer-socket="+c.SignerSocket(), "--external-signer-refresh-hint=2s")
		manager, err = binary.StartManager(c, flags...)
		return err
	}})}
	w.identity(t, user).grant(t, rulesOf(t, flags...), permissions.Access{})
	testcluster.Poll(t, "await the prune of the first key", func() error {
		if !bytes.Contains(testcluster.ReadFile(t, ring), []byte(`"pruned": [`)) {
			return errors.New(manager.LogTail(20))
		}
		return nil
	})
	if exit, err := manager.Stop(); err != nil || exit.Code != 0 {
		t.Errorf("ended with code %d, %v; want 0", exit.Code, err)
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/testkeys"

	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// TestPublishKeys publishes a ring in a directory, exchanges the next key once the ring has another one, and
// takes away a key that another program has added. A directory that is gone is not made.
func TestPublishKeys(t *testing.T) {
	c := testcluster.New(t, devcluster.Options{})
	d := newRingFile(t, "--from-private-key-file="+c.SigningKeyFile())
	d.cluster = c
	dir := filepath.Join(t.TempDir(), "published")
	testutil.Must(t, os.Mkdir(dir, 0o700))
	destination := devcluster.Labels{"destination": "file://" + dir}
	m := c.Manage(t, append(d.flags(), "--publish-keys=file://"+dir)...)
	ring := d.must(t, "list")
	active := ring.role(t, "active")
	awaitPublished(t, dir, active, ring.role(t, "next"))
	m.AwaitMetric(t, "sacm_published_keys_last_success_timestamp_seconds", destination, 1)

	foreign, err := signing.MarshalJWKS([]signing.PublicKey{testkeys.Parse(testkeys.P521()).Public()})
	testutil.Must(t, err)
	testutil.Must(t, os.WriteFile(filepath.Join(dir, signing.JWKSPath), foreign, 0o600))
	awaitPublished(t, dir, active, d.must(t, "next", "--algorithm=P-256").role(t, "next"))

	m.ExpectErrors = true
	testutil.Must(t, os.Rename(dir, dir+"-gone"))
	next := d.must(t, "next", "--algorithm=P-384").role(t, "next")
	m.AwaitMetric(t, "sacm_published_keys_drift", destination, 1)
	awaitReadyDetail(t, m, "published-files ok: file://"+dir, "no such file or directory")
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory was made: it may be a volume that is not mounted yet")
	}
	testutil.Must(t, os.Rename(dir+"-gone", dir))
	awaitPublished(t, dir, active, next)
}

// awaitPublished waits until the directory has these keys and a discovery document.
func awaitPublished(t *testing.T, dir string, want ...string) {
	t.Helper()
	testcluster.Poll(t, "await published keys", func() error {
		if _, err := os.Stat(filepath.Join(dir, signing.DiscoveryPath)); err != nil {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, signing.JWKSPath))
		if err != nil {
			return err
		}
		published, err := signing.ParseJWKS(data)
		if err != nil {
			return err
		}
		var ids []string
		for _, key := range published {
			ids = append(ids, key.ID)
		}
		if !slices.Equal(ids, want) {
			return fmt.Errorf("there are keys %q, want %q", ids, want)
		}
		return nil
	})
}

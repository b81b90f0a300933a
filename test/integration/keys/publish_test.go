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

// TestPublishKeys publishes a ring in a directory, adds a new key once the ring has it, and takes away a
// key that another program has added. A directory that is gone is not made.
func TestPublishKeys(t *testing.T) {
	c := testcluster.Shared(t)
	d := newRingFile(t, c, c.SigningKeyFile())
	dir := filepath.Join(t.TempDir(), "published")
	testutil.Must(t, os.Mkdir(dir, 0o700))
	destination := devcluster.Labels{"destination": "file://" + dir}
	m := c.Manage(t, append(d.flags(), "--publish-keys=file://"+dir)...)
	first := awaitPublished(t, dir, 1)
	m.AwaitMetric(t, "sacm_published_keys_last_success_timestamp_seconds", destination, 1)

	foreign, err := signing.MarshalJWKS([]signing.PublicKey{testkeys.Parse(testkeys.P521()).Public()})
	testutil.Must(t, err)
	testutil.Must(t, os.WriteFile(filepath.Join(dir, signing.JWKSPath), foreign, 0o600))
	d.must(t, "rotate", "start", "--cache-age=0s")
	if second := awaitPublished(t, dir, 2); !slices.Contains(second, first[0]) {
		t.Errorf("published %q, without %q that still verifies", second, first)
	}

	m.ExpectErrors = true
	testutil.Must(t, os.Rename(dir, dir+"-gone"))
	d.must(t, "rollback")
	m.AwaitMetric(t, "sacm_published_keys_drift", destination, 1)
	awaitReadyDetail(t, m, "published-files ok: file://"+dir, "no such file or directory")
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory was made: it may be a volume that is not mounted yet")
	}
	testutil.Must(t, os.Rename(dir+"-gone", dir))
	awaitPublished(t, dir, 1)
}

// awaitPublished waits until the directory has so many keys and a discovery document, and returns their IDs.
func awaitPublished(t *testing.T, dir string, n int) (ids []string) {
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
		ids = nil
		for _, key := range published {
			ids = append(ids, key.ID)
		}
		if len(ids) != n {
			return fmt.Errorf("there are keys %q, want %d", ids, n)
		}
		return nil
	})
	return ids
}

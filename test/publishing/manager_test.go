// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package publishing

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/publish"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/integration/testcluster"
)

// TestManager publishes the ring in a directory and in a bucket, adds a new key once the ring has
// it, and takes away a key that another writer has added.
func TestManager(t *testing.T) {
	c := testcluster.New(t, devcluster.Options{})
	dir, bucket := t.TempDir(), newBucket(t, "manager")
	places := map[string]string{"directory": dir, "bucket": filepath.Join(gateway.Dir, "manager", "cluster")}
	ringFile := filepath.Join(t.TempDir(), "ring.json")
	keys := func(args ...string) {
		t.Helper()
		args = append(append([]string{"keys"}, args...), "--service-account-key-ring="+ringFile)
		if got := testcluster.Run(t, "", args...); got.Code != 0 {
			t.Fatalf("%q: %s%s", args, got.Stdout, got.Stderr)
		}
	}
	keys("init", "--from-private-key-file="+c.SigningKeyFile())
	c.Manage(t, "--token-secrets=manual", "--service-account-private-key-file=", "--service-account-key-ring="+ringFile,
		"--publish-keys=file://"+dir, "--publish-keys="+bucket)
	first := awaitKeys(t, places, 1)

	foreign := ring(t, 0, testkeys.P521())
	addForeign(t, parse(t, bucket), foreign)
	keys("rotate", "start", "--cache-age=0s")
	second := awaitKeys(t, places, 2)
	if !slices.Contains(second, first[0]) {
		t.Errorf("published %q, without %q that still verifies", second, first)
	}
	event := testcluster.AboutProcess("ForeignKeyPublished")
	c.AwaitWarning(t, event, foreign.KeySet().All()[0].ID)
}

// awaitKeys waits until each place has so many keys and a discovery document, and returns their IDs.
func awaitKeys(t *testing.T, places map[string]string, n int) []string {
	t.Helper()
	var ids []string
	err := await.Poll(testcluster.Context(t), func(context.Context) error {
		for name, place := range places {
			if _, err := os.Stat(filepath.Join(place, signing.DiscoveryPath)); err != nil {
				return err
			}
			data, err := os.ReadFile(filepath.Join(place, signing.JWKSPath))
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
				return fmt.Errorf("the %s has keys %q, want %d", name, ids, n)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// addForeign adds the keys of another ring to what is published.
func addForeign(t *testing.T, to publish.Destination, foreign *signing.Ring) {
	t.Helper()
	object, err := to.Get(t.Context(), signing.JWKSPath)
	if err != nil {
		t.Fatal(err)
	}
	body, err := signing.MarshalJWKS(foreign.KeySet().All())
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Put(t.Context(), signing.JWKSPath, object, body, object.Stamp, publish.Headers{}); err != nil {
		t.Fatal(err)
	}
}

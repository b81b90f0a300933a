// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"sa-controller-manager/internal/testutil"
)

// TestServingCAInAFile: after a deletion of the file a host changes to another CA, once kube-apiserver has
// that, however long it takes.
func TestServingCAInAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		config := ManagedConfig{File: filepath.Join(dir, "serving-ca.json")}
		m := run(t, config)
		first := m.CABundle()
		testutil.Must(t, os.Remove(config.File))
		time.Sleep(time.Minute)
		own := m.CABundle()
		if cas := parse(t, own); len(cas) != 2 {
			t.Fatalf("the caBundle has %d CAs, want the first one and one to come", len(cas))
		}
		m.Registered([][]byte{first}, false)
		time.Sleep(2 * hold)
		testutil.Must(t, accepts(m, first, "127.0.0.1"))

		m.Registered([][]byte{own}, false)
		time.Sleep(time.Minute)
		if accepts(m, first, "127.0.0.1") == nil {
			t.Error("the leaf is still of the first CA")
		}
		testutil.Must(t, accepts(m, own, "127.0.0.1"))

		// A new process needs no API, and a damaged file is written again by the one that runs.
		testutil.Must(t, accepts(run(t, config), own, "127.0.0.1"))
		testutil.Must(t, os.WriteFile(config.File, []byte("{"), 0o600))
		time.Sleep(time.Minute)
		testutil.Must(t, accepts(run(t, config), own, "127.0.0.1"))
	})
}

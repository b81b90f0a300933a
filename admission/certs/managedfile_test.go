// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes/fake"

	"sa-controller-manager/internal/testutil"
)

// TestServingCAInAFile: a host begins with the CA of the Secret. After a deletion of the file it changes
// to one of its own, once kube-apiserver has that, however long it takes.
func TestServingCAInAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		shared := run(t, ManagedConfig{Client: client}).CABundle()

		config := ManagedConfig{Client: client, File: filepath.Join(dir, "serving-ca.json")}
		m := run(t, config)
		if !bytes.Equal(m.CABundle(), shared) {
			t.Fatal("the caBundle is not that of the Secret")
		}
		testutil.Must(t, os.Remove(config.File))
		time.Sleep(time.Minute)
		own := m.CABundle()
		if cas := parse(own); len(cas) != 2 {
			t.Fatalf("the caBundle has %d CAs, want the shared one and one to come", len(cas))
		}
		m.Registered([][]byte{shared}, false)
		time.Sleep(2 * hold)
		testutil.Must(t, accepts(m, shared, "127.0.0.1"))

		m.Registered([][]byte{own}, false)
		time.Sleep(time.Minute)
		if accepts(m, shared, "127.0.0.1") == nil {
			t.Error("the leaf is still of the shared CA")
		}
		testutil.Must(t, accepts(m, own, "127.0.0.1"))

		// A new process needs no API, and a damaged file is written again by the one that runs.
		config.Client = nil
		testutil.Must(t, accepts(run(t, config), own, "127.0.0.1"))
		testutil.Must(t, os.WriteFile(config.File, []byte("{"), 0o600))
		time.Sleep(time.Minute)
		testutil.Must(t, accepts(run(t, config), own, "127.0.0.1"))

		// Back with a Secret, which has another CA: callers may have either.
		back := run(t, ManagedConfig{Client: fake.NewClientset(), OldFile: config.File})
		testutil.Must(t, errors.Join(accepts(back, own, "127.0.0.1"), accepts(back, back.CABundle(), "127.0.0.1")))
	})
}

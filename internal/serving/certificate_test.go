// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/server/options"

	"sa-controller-manager/internal/testutil"
)

// keptCert is the certificate in dir, "" if there is none and none can be made.
func keptCert(t *testing.T, dir string) (string, error) {
	t.Helper()
	config := defaults(t)
	config.Serving.ServerCert = options.GeneratableKeyCert{CertDirectory: dir, PairName: "sa-controller-manager"}
	server, err := New(*config)
	if err != nil {
		return "", err
	}
	// It ends at once, and with it what it has begun when it was made.
	ended, end := context.WithCancel(t.Context())
	end()
	testutil.Must(t, server.Run(ended))
	cert, _ := server.info.Cert.CurrentCertKeyContent()
	return string(cert), nil
}

func TestKeptCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := keptCert(t, dir)
	testutil.Must(t, err)
	if again, err := keptCert(t, dir); err != nil || again != first {
		t.Errorf("the certificate of the first start is not found again: %v", err)
	}
	var files []string
	entries, err := os.ReadDir(dir)
	testutil.Must(t, err)
	for _, entry := range entries {
		files = append(files, entry.Name())
	}
	testutil.Check(t, "files", []string{"sa-controller-manager" + ".crt", "sa-controller-manager" + ".key"}, files)
	// The user may have moved one of them on purpose, or a process was killed between the two files.
	for moved, stays := range map[string]string{".key": ".crt", ".crt": ".key"} {
		path := filepath.Join(dir, "sa-controller-manager")
		kept, err := os.ReadFile(path + stays)
		testutil.Must(t, err)
		testutil.Must(t, os.Rename(path+moved, path+".moved"))
		if _, err := keptCert(t, dir); err == nil || !strings.Contains(err.Error(), "--cert-dir") || !strings.Contains(err.Error(), path+moved) {
			t.Errorf("without %s: %v", moved, err)
		}
		now, err := os.ReadFile(path + stays)
		testutil.Must(t, err)
		testutil.Check(t, stays, string(kept), string(now))
		testutil.Must(t, os.Rename(path+".moved", path+moved))
	}
}

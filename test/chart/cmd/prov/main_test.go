// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"helm.sh/helm/v4/pkg/downloader"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestPackagedChart packages the chart as make release does, signs it, and has Helm verify both.
func TestPackagedChart(t *testing.T) {
	var packaged [2][]byte
	var archive string
	for i := range packaged {
		out := t.TempDir()
		if printed, err := exec.Command("../../../release/chart.sh", out, "2026-11-21T10:00:00Z").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, printed)
		}
		found, err := filepath.Glob(out + "/sa-controller-manager-*.tgz")
		must(t, err)
		archive = found[0]
		packaged[i], err = os.ReadFile(archive)
		must(t, err)
	}
	if !bytes.Equal(packaged[0], packaged[1]) {
		t.Error("equal sources give different bytes")
	}
	keyring := func(serialize func(*openpgp.Entity, *os.File) error) string {
		entity, err := openpgp.NewEntity("maintainers", "", "release@example.com", nil)
		must(t, err)
		dir := t.TempDir()
		for name, write := range map[string]func(*openpgp.Entity, *os.File) error{
			"secret": serialize, "public": func(of *openpgp.Entity, file *os.File) error { return of.Serialize(file) },
		} {
			file, err := os.Create(filepath.Join(dir, name))
			must(t, err)
			must(t, write(entity, file))
			must(t, file.Close())
		}
		return dir
	}
	private := func(of *openpgp.Entity, file *os.File) error { return of.SerializePrivate(file, nil) }
	ours, others := keyring(private), keyring(private)
	must(t, run([]string{filepath.Join(ours, "secret"), archive}))
	provenance := archive + ".prov"
	if _, err := downloader.VerifyChart(archive, provenance, filepath.Join(ours, "public")); err != nil {
		t.Errorf("helm verify: %v", err)
	}
	if _, err := downloader.VerifyChart(archive, provenance, filepath.Join(others, "public")); err == nil {
		t.Error("another key verifies it")
	}
	must(t, os.WriteFile(archive, append(packaged[0], 0), 0o600))
	if _, err := downloader.VerifyChart(archive, provenance, filepath.Join(ours, "public")); err == nil {
		t.Error("a changed archive is verified")
	}
}

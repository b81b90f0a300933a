// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package configfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/manifests"
)

// TestFindings: an edit of the operator's admission configuration after the takeover has no effect, and is found.
func TestFindings(t *testing.T) {
	t.Parallel()
	was := []byte("kind: AdmissionConfiguration\n")
	for name, tc := range map[string]struct {
		reason                 string
		now                    string // "" for none
		head, changed, skipped bool
	}{
		"Same":     {"kube-apiserver has it", string(was), true, false, false},
		"Changed":  {"kube-apiserver does not have it", "kind: Other\n", true, true, false},
		"Unseen":   {"it is in no mount of ours, or gone", "", true, false, true},
		"NoSource": {"the operator has none", "", false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "admission.yaml")
			if tc.now != "" {
				testutil.Must(t, os.WriteFile(file, []byte(tc.now), 0o600))
			}
			copied := "# Written by sa-controller-manager kubeadm takeover, for kube-apiserver.\n"
			if tc.head {
				copied += Source(file, was)
			}
			testutil.Must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(manifests.AdmissionConfig)), 0o700))
			testutil.Must(t, os.WriteFile(filepath.Join(dir, manifests.AdmissionConfig), []byte(copied+"plugins: []\n"), 0o600))
			got := testutil.Get(Findings(dir))(t)
			is := len(got.Findings) == 1 && fmt.Sprint(got.Findings[0].Objects) == "["+file+"]"
			testutil.Expect(t, is == tc.changed && got.Skipped == tc.skipped, "%s: %+v", tc.reason, got)
			testutil.Expect(t, !tc.head || !tc.skipped || strings.Contains(got.Note, file), "the note %q does not name the file", got.Note)
		})
	}
}

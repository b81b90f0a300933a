// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package nodefile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sa-controller-manager/internal/testutil"
)

// TestWriteLosesNothing covers changes to a file between the time when
// it was read and that when its step comes.
func TestWriteLosesNothing(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason              string
		before, now, after  string // "" is no file
		wantErr, wantAtLast string
	}{
		"Untouched": {before: "old", now: "old", after: "new", wantAtLast: "new"},
		"New":       {after: "new", wantAtLast: "new"},
		"Removed":   {before: "old", now: "old"},
		"Edited": {
			reason: "the edit would be gone", before: "old", now: "edited", after: "new", wantErr: "has been changed since it was read",
			wantAtLast: "edited",
		},
		"EditedAndRemoved": {before: "old", now: "edited", wantErr: "has been changed since it was read", wantAtLast: "edited"},
		"Appeared":         {now: "theirs", after: "new", wantErr: "has been changed since it was read", wantAtLast: "theirs"},
		"Vanished":         {before: "old", after: "new", wantErr: "has been changed since it was read"},
	}
	content := func(text string) []byte {
		if text == "" {
			return nil
		}
		return []byte(text)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "manifest.yaml")
			if tc.now != "" {
				testutil.Must(t, os.WriteFile(path, []byte(tc.now), 0o600))
			}
			err := Write{Path: path, Before: content(tc.before), After: content(tc.after)}.Do()
			testutil.Expect(t, (tc.wantErr != "" || err == nil) &&
				(tc.wantErr == "" || err != nil && strings.Contains(err.Error(), tc.wantErr)),
				"%s: got error %v, want one with %q", tc.reason, err, tc.wantErr)
			got, err := os.ReadFile(path)
			testutil.Require(t, err == nil || os.IsNotExist(err), "%v", err)
			testutil.Expect(t, string(got) == tc.wantAtLast, "the file holds %q, want %q", got, tc.wantAtLast)
		})
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSignerUsers(t *testing.T) {
	t.Parallel()
	own := uint32(os.Getuid())
	if diff := cmp.Diff(slices.Compact([]uint32{0, own}), parse(t).ExternalSigner.UIDs()); diff != "" {
		t.Errorf("by default (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]uint32{7, 4294967294}, parse(t, "--external-signer-allowed-uids=7,4294967294").ExternalSigner.UIDs()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

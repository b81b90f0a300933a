// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"os"
	"slices"
	"testing"

	"sa-controller-manager/internal/testutil"
)

func TestSignerUsers(t *testing.T) {
	t.Parallel()
	own := uint32(os.Getuid())
	testutil.Check(t, "by default", slices.Compact([]uint32{0, own}), parse(t).ExternalSigner.UIDs())
	testutil.Check(t, "result", []uint32{7, 4294967294}, parse(t, "--external-signer-allowed-uids=7,4294967294").ExternalSigner.UIDs())
}

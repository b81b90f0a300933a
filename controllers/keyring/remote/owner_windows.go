// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import "io/fs"

// trusted is false: the owner is unknown here, and these sockets are of Linux.
func trusted(fs.FileInfo) bool { return false }

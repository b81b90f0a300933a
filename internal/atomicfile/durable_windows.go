// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package atomicfile

import (
	"errors"
	"io/fs"
	"os"
)

// setOwner has nothing to do: a new file belongs to the user of this process.
func setOwner(*os.File, fs.FileInfo) error { return nil }

// Lock locks nothing: no command on Windows writes what others write too.
func Lock(*os.File) error { return errors.ErrUnsupported }

// syncDirectory has nothing to do: Windows syncs no directories.
func syncDirectory(string) error { return nil }

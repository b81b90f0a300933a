// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package ring

import (
	"errors"
	"os"
)

// On Windows rings are only read.

func tryLock(*os.File) error { return errors.ErrUnsupported }

func unlockFile(*os.File) error { return errors.ErrUnsupported }

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"sa-controller-manager/test/narrate"
)

// drainLimit is what the manager promises.
const drainLimit = 10 * time.Second

func managerLeaves(_ context.Context, s *story) error {
	exit, err := s.manager.Stop()
	if err != nil {
		return err
	}
	s.Notef("observed", "SIGTERM, then exit code %d after %s", exit.Code, narrate.Rounded(exit.Took))
	if exit.Code != 0 || exit.Took > drainLimit {
		return fmt.Errorf("exit code %d after %s", exit.Code, narrate.Rounded(exit.Took))
	}
	return nil
}

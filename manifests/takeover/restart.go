// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"time"

	"sa-controller-manager/internal/await"
)

// Restart has the kubelet restart the component that Config.Steps names.
func Restart(ctx context.Context, c Config) error {
	o, err := c.observe()
	if err != nil {
		return err
	}
	s, err := c.planRestart(o, c.Steps[0], time.Now().UTC().Format(time.RFC3339Nano))
	if err != nil {
		return err
	}
	return c.run(ctx, []step{s})
}

func (c *Config) planRestart(o *observed, name, value string) (step, error) {
	after, err := o.files[name].Restart(value)
	if err != nil {
		return step{}, c.damaged(name, err)
	}
	s := step{name: name, summary: name + " restarts, and is ready again", advice: logOf(name), proofs: []await.Check{c.isNode(o)}}
	w := written{c: c, record: o.record, data: o.recordFile}
	err = w.takes(&s, o.files[name], after)
	s.rollback = nil // that would be one more restart
	return s, err
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"strings"
	"time"
)

// fault is what goes wrong for a while between a process and the API server.
type fault struct {
	// client is the beginning of a client's name, resource what is asked about; "" is any.
	client, resource string
	until            time.Time
	// fate is that of each request; served if only watches are silent.
	fate fate
}

func (f *fault) meets(c *client, resource string) bool {
	return !c.user && time.Now().Before(f.until) && strings.HasPrefix(c.name, f.client) && (f.resource == "" || f.resource == resource)
}

func (f *fault) hits(c *call) bool {
	return f.fate != served && f.meets(c.client, c.request.Resource) && (f.fate != forbidden || c.writes())
}

// stalls returns until when a watch is silent.
func (f *fault) stalls(s *stream) time.Time {
	if f.fate != forbidden && f.meets(s.client, s.watch.Resource()) {
		return f.until
	}
	return time.Time{}
}

// review has each TokenReview take longer.
func (n *network) review(takes time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reviews = takes
}

func (n *network) strike(f *fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = append(n.faults, f)
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package checker

import (
	"maps"
	"regexp"
	"slices"
	"strconv"

	eventsv1 "k8s.io/api/events/v1"
)

// eventsPerScan is of how many Pods one scan tells each by an Event of its own. The Event about
// all of them has their number (docs/metrics.md).
const eventsPerScan = 100

// missedNumber is where the Event about all missed Pods says how many there are.
var missedNumber = regexp.MustCompile(`account or token: (\d+),`)

// WithoutEvent are the missed Pods of which no Event tells. Where there are more than a scan has
// Events for, one about all of them tells of the rest, if it has counted them.
func WithoutEvent(missed map[string]bool, each, all []eventsv1.Event) []string {
	unreported := maps.Clone(missed)
	for _, event := range each {
		delete(unreported, event.Regarding.Namespace+"/"+event.Regarding.Name)
	}
	if told := len(missed) - len(unreported); told < eventsPerScan {
		return slices.Sorted(maps.Keys(unreported))
	}
	for _, event := range all {
		if found := missedNumber.FindStringSubmatch(event.Note); found != nil {
			if counted, err := strconv.Atoi(found[1]); err == nil && counted >= len(missed) {
				return nil
			}
		}
	}
	return slices.Sorted(maps.Keys(unreported))
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// eventsPerScan is of how many Pods one scan tells each by an Event of its own. The Event about
// all of them has their number (docs/operations.md).
const eventsPerScan = 100

// awaitTold returns once Events tell of the Pods that were admitted without the webhook, with
// those of which none does in the end. The scan looks once a minute at most, and after each
// repair.
func (w *World) awaitTold(ctx context.Context, missed map[string]bool) ([]string, error) {
	for deadline := time.Now().Add(patience); ; {
		each, err := w.events(ctx, "AdmittedWithoutWebhook")
		if err != nil {
			return nil, err
		}
		all, err := w.events(ctx, "PodsMissed")
		if err != nil {
			return nil, err
		}
		untold := untoldOf(missed, each, all)
		if len(untold) == 0 || time.Now().After(deadline) {
			return untold, nil
		}
		if !sleep(ctx, 500*time.Millisecond) {
			return nil, context.Cause(ctx)
		}
	}
}

func (w *World) events(ctx context.Context, reason string) ([]eventsv1.Event, error) {
	events, err := w.client.client.EventsV1().Events("").List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("reason", reason).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("list Events: %w", err)
	}
	return events.Items, nil
}

// missedNumber is where the Event about all missed Pods says how many there are.
var missedNumber = regexp.MustCompile(`account or token: (\d+),`)

// untoldOf are the missed Pods of which no Event tells. Where there are more than a scan has
// Events for, one about all of them tells of the rest, if it has counted them.
func untoldOf(missed map[string]bool, each, all []eventsv1.Event) []string {
	untold := maps.Clone(missed)
	for _, event := range each {
		delete(untold, event.Regarding.Namespace+"/"+event.Regarding.Name)
	}
	if told := len(missed) - len(untold); told < eventsPerScan {
		return slices.Sorted(maps.Keys(untold))
	}
	for _, event := range all {
		if found := missedNumber.FindStringSubmatch(event.Note); found != nil {
			if counted, err := strconv.Atoi(found[1]); err == nil && counted >= len(missed) {
				return nil
			}
		}
	}
	return slices.Sorted(maps.Keys(untold))
}

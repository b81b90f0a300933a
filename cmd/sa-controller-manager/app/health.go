// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"strings"
	"sync"
	"time"

	"sa-controller-manager/internal/check"
)

// probe returns the check of /readyz of a part, nil if it has none. It fails for an error and for findings that are
// Unready, names the other ones, and says since when it has seen each.
func (p *Part) probe() func() (detail string, err error) {
	if p.Findings == nil {
		return p.Check
	}
	var mu sync.Mutex
	seen := map[string]time.Time{}
	return func() (string, error) {
		mu.Lock()
		defer mu.Unlock()
		result, err := p.Findings()
		if err != nil {
			return result.Note, err
		}
		still := map[string]time.Time{}
		var details, failures []string
		if result.Note != "" {
			details = append(details, result.Note)
		}
		for _, finding := range check.WithFlags(result.Findings, "") {
			key := finding.Code + finding.Host // the message may have an error, which changes
			finding.Since = seen[key]
			if finding.Since.IsZero() {
				finding.Since = time.Now()
			}
			still[key] = finding.Since
			if line := finding.Code + ": " + finding.Line(); finding.Unready {
				failures = append(failures, line)
			} else {
				details = append(details, "finding "+line)
			}
		}
		seen = still
		detail := strings.Join(details, "; ")
		if len(failures) > 0 {
			return detail, errors.New(strings.Join(failures, "; "))
		}
		return detail, nil
	}
}

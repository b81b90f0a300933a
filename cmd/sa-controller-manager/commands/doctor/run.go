// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"time"
)

// Result is how one check ended.
type Result struct {
	Name     string
	Findings []Finding
	Note     string
	// Err is why the check could not tell.
	Err error
}

// Run makes the checks, each of which may take as long as limit. It calls begin before
// each one. It ends early only when ctx does, and then has a result for each all the
// same.
func Run(ctx context.Context, cluster *Cluster, checks []Check, limit time.Duration, begin func(Check)) []Result {
	results := make([]Result, 0, len(checks))
	for _, check := range checks {
		begin(check)
		answer, err := check.within(ctx, cluster, limit)
		for i := range answer.Findings {
			answer.Findings[i].Check = check.Name
		}
		results = append(results, Result{Name: check.Name, Findings: answer.Findings, Note: answer.Note, Err: err})
	}
	return results
}

// within makes one check.
func (c Check) within(ctx context.Context, cluster *Cluster, limit time.Duration) (Answer, error) {
	late := fmt.Errorf("no answer within %s", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	answer, err := c.run(ctx, cluster)
	if err != nil && ctx.Err() != nil {
		return answer, fmt.Errorf("%w: %v", context.Cause(ctx), err)
	}
	return answer, err
}

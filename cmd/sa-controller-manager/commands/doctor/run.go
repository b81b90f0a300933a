// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"time"
)

// Result is how one check ended. Its JSON form is that of the command's output.
type Result struct {
	Name string `json:"name"`
	// Word is "ok", "findings" or "unknown". Findings win: they are certain, whatever else could
	// not be found out.
	Word string `json:"result"`
	Note string `json:"note,omitempty"`
	// Error is why the check could not tell, "" if it could.
	Error string `json:"error,omitempty"`

	findings []Finding
}

func newResult(name string, answer Answer, err error) Result {
	result := Result{Name: name, Word: "ok", Note: answer.Note, findings: answer.Findings}
	for i := range result.findings {
		result.findings[i].Check = name
	}
	if err != nil {
		result.Word, result.Error = "unknown", err.Error()
	}
	if len(result.findings) > 0 {
		result.Word = "findings"
	}
	return result
}

// Run makes the checks, each of which may take as long as limit. It calls begin before
// each one. It ends early only when ctx does, and then has a result for each all the
// same.
func Run(ctx context.Context, cluster *Cluster, checks []Check, limit time.Duration, begin func(Check)) []Result {
	results := make([]Result, 0, len(checks))
	for _, check := range checks {
		begin(check)
		answer, err := check.within(ctx, cluster, limit)
		results = append(results, newResult(check.Name, answer, err))
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

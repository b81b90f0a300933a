// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"time"
)

// result is how one check ended. Its JSON form is that of the command's output.
type result struct {
	Name string `json:"name"`
	// Word is "ok", "findings", "unknown" or "skipped". Findings win: they are certain, even if the
	// rest of the check failed.
	Word string `json:"result"`
	Note string `json:"note,omitempty"`
	// Error is why the check could not be completed, or "".
	Error string `json:"error,omitempty"`

	findings []finding
}

func newResult(name string, answer answer, err error) result {
	result := result{Name: name, Word: "ok", Note: answer.Note, findings: answer.Findings}
	for i := range result.findings {
		result.findings[i].Check = name
	}
	if answer.Skipped {
		result.Word = "skipped"
	}
	if err != nil {
		result.Word, result.Error = "unknown", err.Error()
	}
	if len(result.findings) > 0 {
		result.Word = "findings"
	}
	return result
}

// run runs the checks, each with the timeout limit, and calls show with a line before each one. If
// ctx ends early, the remaining checks get the result "unknown".
func run(ctx context.Context, cluster *cluster, checks []check, limit time.Duration, show func(string)) []result {
	results := make([]result, 0, len(checks))
	for _, check := range checks {
		show(check.Name + ": " + check.About + " ...")
		answer, err := check.within(ctx, cluster, limit)
		results = append(results, newResult(check.Name, answer, err))
	}
	return results
}

// within runs one check.
func (c check) within(ctx context.Context, cluster *cluster, limit time.Duration) (answer, error) {
	late := fmt.Errorf("no answer within %s", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	answer, err := c.run(ctx, cluster)
	if err != nil && ctx.Err() != nil {
		return answer, fmt.Errorf("%w: %v", context.Cause(ctx), err)
	}
	return answer, err
}

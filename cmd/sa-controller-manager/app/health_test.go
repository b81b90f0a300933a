// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/testutil"
)

// TestFindingsOfAPart: readiness fails for what is meant to fail it, names everything else, and says since when.
func TestFindingsOfAPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var now check.Result
		var failed error
		part := Part{Findings: func() (check.Result, error) { return now, failed }}
		probe := part.probe()
		began := time.Now().UTC().Format(time.RFC3339)
		bad := check.Finding{Code: "bad", Message: "it is bad", Cost: "Pods are refused", Remedy: "repair{flags}", Unready: true}
		odd := check.Finding{Code: "odd", Message: "it is odd", Why: "seen"}
		for _, step := range []struct {
			reason       string
			result       check.Result
			err          error
			detail, want string
		}{
			{"nothing", check.Result{Note: "registered"}, nil, "registered", ""},
			{"a finding that passes", check.Result{Note: "n", Findings: []check.Finding{odd}}, nil,
				"n; finding odd: it is odd: seen; since SINCE", ""},
			{"both, and the first is older", check.Result{Findings: []check.Finding{odd, bad}}, nil,
				"finding odd: it is odd: seen; since SINCE", "bad: it is bad, so that Pods are refused; since LATER; repair"},
			{"the same with another error", check.Result{Findings: []check.Finding{{Code: "odd", Message: "it is odder"}}}, nil,
				"finding odd: it is odder; since SINCE", ""},
			{"nothing is known", check.Result{}, errors.New("not asked yet"), "", "not asked yet"},
		} {
			now, failed = step.result, step.err
			detail, err := probe()
			replace := strings.NewReplacer("SINCE", began, "LATER", time.Now().UTC().Format(time.RFC3339))
			testutil.Check(t, step.reason+": detail", replace.Replace(step.detail), detail)
			testutil.CheckError(t, step.reason, replace.Replace(step.want), err)
			time.Sleep(time.Minute)
			if step.reason == "nothing" {
				began = time.Now().UTC().Format(time.RFC3339)
			}
		}
	})
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"encoding/json"
	"testing"

	"sa-controller-manager/internal/testutil"
)

// TestSARIF has what section 3 of the format requires, and what services show.
func TestSARIF(t *testing.T) {
	t.Parallel()
	var written bytes.Buffer
	testutil.Must(t, Print(&written, SARIF, &Report{Tokens: []Row{
		{Namespace: "shop", Name: "a", Account: "robot\x1b[2J", Findings: []Finding{ClusterAdmin, Unused}},
		{Namespace: "bank", Name: "b", Account: "gone", Problem: "the account does not exist", Findings: []Finding{Orphan}},
		{Namespace: "bank", Name: "c"},
	}}, now))
	var log struct {
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct {
					Name  string
					Rules []struct {
						ID                   string
						DefaultConfiguration struct{ Level string }
					}
				}
			}
			Results []struct {
				RuleID, Level string
				Message       struct{ Text string }
				Locations     []struct {
					PhysicalLocation struct{ ArtifactLocation struct{ URI string } }
				}
			}
		}
	}
	testutil.Must(t, json.Unmarshal(written.Bytes(), &log))
	run := log.Runs[0]
	testutil.Check(t, "version and tool", []string{"2.1.0", "sa-controller-manager"}, []string{log.Version, run.Tool.Driver.Name})
	var rules, results []string
	for _, rule := range run.Tool.Driver.Rules {
		rules = append(rules, rule.ID)
	}
	testutil.Check(t, "rules", Names(), rules)
	for _, result := range run.Results {
		results = append(results, result.RuleID+" "+result.Level+" "+result.Locations[0].PhysicalLocation.ArtifactLocation.URI+" "+
			result.Message.Text)
	}
	testutil.Check(t, "results", []string{
		`cluster-admin error api/v1/namespaces/shop/secrets/a Token of robot\u001b[2J: the account may do everything, in all namespaces`,
		`unused note api/v1/namespaces/shop/secrets/a Token of robot\u001b[2J: it was not used for a year, or the period that was given`,
		"orphan warning api/v1/namespaces/bank/secrets/b Token of gone: the account does not exist",
	}, results)
}

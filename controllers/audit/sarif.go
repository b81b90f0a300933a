// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"

	"k8s.io/component-base/version"

	"sa-controller-manager/internal/printers"
)

// SARIF is the output for services that show the results of scanners (OASIS SARIF 2.1.0).
const SARIF = "sarif"

// object is one of JSON.
type object = map[string]any

// levels are those of SARIF, section 3.27.10, by severity.
var levels = map[string]string{"high": "error", "medium": "warning", "low": "note"}

// sarif has a rule for each finding that there is, and a result for each that a token has. The place of a
// result is the path of the Secret in the API.
func sarif(report *Report) object {
	rules, meanings := []object{}, map[Finding]Meaning{}
	for _, meaning := range Findings() {
		meanings[meaning.Name] = meaning
		rules = append(rules, object{"id": meaning.Name, "shortDescription": message(meaning.About), "help": message(meaning.Do)})
	}
	results := []object{}
	for i := range report.Tokens {
		row := &report.Tokens[i]
		path := "api/v1/namespaces/" + row.Namespace + "/secrets/" + row.Name
		for _, finding := range row.Findings {
			about := cmp.Or(map[Finding]string{BadToken: row.Problem, Orphan: row.Problem}[finding], meanings[finding].About)
			results = append(results, object{
				"ruleId": finding, "level": levels[meanings[finding].Severity],
				"message":   message("Token of " + printers.OrNone(row.Account) + ": " + about),
				"locations": []object{{"physicalLocation": object{"artifactLocation": object{"uri": path}}}},
				// Equal in each run, so that a service recognizes the result.
				"partialFingerprints": object{"object/v1": path},
			})
		}
	}
	driver := object{"name": "sa-controller-manager", "semanticVersion": version.Get().GitVersion[1:], "rules": rules}
	return object{
		"$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json", "version": "2.1.0",
		"runs": []object{{"tool": object{"driver": driver}, "results": results}},
	}
}

func message(of string) object { return object{"text": of} }

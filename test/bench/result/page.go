// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"regexp"
	"strings"
)

var marked = regexp.MustCompile(`(?s)(<!-- (results|about): ([a-z0-9-]+) -->\n).*?(<!-- end -->)`)

// Fill replaces what is between the markers of a page:
//
//	<!-- results: SCENARIO -->
//	<!-- end -->
//
// becomes the table of a scenario, and "about" with the name of a report its conditions.
// What none of the reports has is left as it is, so that one report of two can be made
// anew. An opening marker without its end is an error.
func Fill(page string, reports ...*Report) (string, error) {
	if opened, ended := strings.Count(page, "<!-- results: ")+strings.Count(page, "<!-- about: "), len(marked.FindAllString(page, -1)); opened != ended {
		return "", fmt.Errorf("%d markers are opened and %d of them end", opened, ended)
	}
	return marked.ReplaceAllStringFunc(page, func(old string) string {
		match := marked.FindStringSubmatch(old)
		for _, report := range reports {
			if content := report.content(match[2], match[3]); content != "" {
				return match[1] + content + match[4]
			}
		}
		return old
	}), nil
}

func (r *Report) content(kind, name string) string {
	if kind == "results" {
		return r.Table(name)
	}
	if name == r.Name {
		return r.About()
	}
	return ""
}

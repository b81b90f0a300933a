// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"regexp"
	"strings"
)

var marked = regexp.MustCompile(`(?s)(<!-- (results|about|chart): ([a-z0-9-]+) -->\n).*?(<!-- end -->)`)

// Fill replaces what is between the markers of a page:
//
//	<!-- results: SCENARIO -->
//	<!-- end -->
//
// becomes the table of a scenario. Sources are asked for the content of a marker by its kind
// and name, and the first that has any counts. What none of them has is left as it is. An
// opening marker without its end is an error.
func Fill(page string, sources ...Source) (string, error) {
	opened := 0
	for _, kind := range []string{"results", "about", "chart"} {
		opened += strings.Count(page, "<!-- "+kind+": ")
	}
	if ended := len(marked.FindAllString(page, -1)); opened != ended {
		return "", fmt.Errorf("%d markers are opened and %d of them end", opened, ended)
	}
	return marked.ReplaceAllStringFunc(page, func(old string) string {
		match := marked.FindStringSubmatch(old)
		for _, source := range sources {
			if content := source(match[2], match[3]); content != "" {
				return match[1] + content + match[4]
			}
		}
		return old
	}), nil
}

// Source is the content for a marker, or nothing.
type Source func(kind, name string) string

// Content has the table of a scenario for "results", and for "about" with the name of the
// report its conditions.
func (r *Report) Content(kind, name string) string {
	switch {
	case kind == "results":
		return r.Table(name)
	case kind == "about" && name == r.Name:
		return r.About()
	default:
		return ""
	}
}

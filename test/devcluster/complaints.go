// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"regexp"
	"slices"
)

// errorLine is how klog begins a line of severity Error or Fatal.
var errorLine = regexp.MustCompile(`(?m)^[EF]\d{4} .*$`)

// cutOff is what client-go logs for a request whose answer is on its way when the
// manager ends, for a renewal of its Lease, and for a list that has not come by then.
var cutOff = regexp.MustCompile(`request\.go:.*"Unexpected error when reading response body" err="context canceled"|` +
	`leaderelection\.go:.*err="context canceled"|` +
	`shared_informer\.go:.*"Unable to sync caches"`)

// Complaints are the lines of severity Error or Fatal in what a manager has printed. What
// its end cuts off is none, nor is what one of the given expressions matches.
func Complaints(printed string, expected ...*regexp.Regexp) []string {
	return slices.DeleteFunc(errorLine.FindAllString(printed, -1), func(line string) bool {
		return slices.ContainsFunc(append(expected, cutOff), func(e *regexp.Regexp) bool { return e.MatchString(line) })
	})
}

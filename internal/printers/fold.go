// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package printers

import "strings"

// Fold breaks a line between words, and continues below its text, which begins at indent. 0 columns are no limit.
func Fold(line string, indent, columns int) string {
	var folded []string
	for columns > 0 && len(line) > columns {
		at := strings.LastIndex(line[:columns+1], " ")
		if at <= indent { // a long word stays whole
			if at = strings.Index(line[columns:], " "); at < 0 {
				break
			}
			at += columns
		}
		folded = append(folded, strings.TrimRight(line[:at], " "))
		line = strings.Repeat(" ", indent) + line[at+1:]
	}
	return strings.Join(append(folded, line), "\n")
}

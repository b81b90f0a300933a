// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package staticpod

import (
	"bytes"
	"errors"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

var (
	// bullet is what comes before a string of a block list.
	bullet = regexp.MustCompile(`^ *- +$`)
	// nothing is what may come after it.
	nothing = regexp.MustCompile(`^( +#.*)?[ ]*\r?\n?$`)
	// doubleQuoted is a string in double quotes, with escapes.
	doubleQuoted = regexp.MustCompile(`^"(?:[^"\\]|\\.)*"`)
	// singleQuoted is a string in single quotes, where two of them are one.
	singleQuoted = regexp.MustCompile(`^'(?:[^']|'')*'`)
)

// lineStarts returns the offsets at which lines begin.
func lineStarts(data []byte) []int {
	starts := []int{0}
	for i, b := range data {
		if b == '\n' {
			starts = append(starts, i+1)
		}
	}
	return starts
}

// locate finds the text of a string that is alone on its line of a block list.
func locate(data []byte, starts []int, node *yaml.Node) (item, error) {
	if node.Kind != yaml.ScalarNode || node.Tag != "!!str" || node.Style&yaml.TaggedStyle != 0 {
		return item{}, errors.New("the command must be a list of plain strings")
	}
	line := span{from: starts[node.Line-1], to: len(data)}
	if node.Line < len(starts) {
		line.to = starts[node.Line]
	}
	// Columns count characters. Those before the string are one byte each, or bullet does not match.
	from := line.from + node.Column - 1
	if from > line.to || !bullet.Match(data[line.from:from]) {
		return item{}, errors.New("a string of the command must be on a line of its own, after a dash")
	}
	text := written(data[from:line.to], node)
	after := from + len(text)
	if text == nil || !nothing.Match(data[after:line.to]) {
		return item{}, errors.New("a string of the command must be on one line")
	}
	return item{value: node.Value, line: line, text: span{from, after}}, nil
}

// written returns the string at the beginning of rest, or nil. A quoted string that continues on the
// next line has no end in rest.
func written(rest []byte, node *yaml.Node) []byte {
	switch node.Style {
	case yaml.DoubleQuotedStyle:
		return doubleQuoted.Find(rest)
	case yaml.SingleQuotedStyle:
		return singleQuoted.Find(rest)
	case 0:
		// A string that continues on the next line has a space for the line end.
		if bytes.HasPrefix(rest, []byte(node.Value)) {
			return rest[:len(node.Value)]
		}
		return nil
	default:
		return nil
	}
}

// quote quotes value as the previous text was quoted. Parsing the result refuses a value that would need
// more than quotes.
func quote(before, value string) string {
	switch {
	case strings.HasPrefix(before, `'`):
		return `'` + strings.ReplaceAll(value, `'`, `''`) + `'`
	case strings.HasPrefix(before, `"`):
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
	default:
		return value
	}
}

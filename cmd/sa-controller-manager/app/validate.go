// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Validate returns every problem of every group at once, in the order of the
// help, so that a command line is mended in one go.
func (o *Options) Validate() []error {
	var p problems
	for _, g := range o.groups() {
		p = append(p, g.Validate()...)
	}
	return append(p, o.validateSigner()...)
}

// problems collects what is wrong with flags. Every text has the form of
// kube-apiserver's: --flag value must be such and such.
type problems []error

func (p *problems) add(flag string, value any, must string) {
	if s, ok := value.(string); ok {
		value = strconv.Quote(s)
	}
	*p = append(*p, fmt.Errorf("--%s %v %s", flag, value, must))
}

// oneOf wants value to be one of choices.
func (p *problems) oneOf(flag, value string, choices ...string) {
	if slices.Contains(choices, value) {
		return
	}
	must := "must be "
	if len(choices) > 1 {
		must += "one of "
	}
	p.add(flag, value, must+strings.Join(quoted(choices), ", "))
}

func quoted(words []string) []string {
	all := make([]string, 0, len(words))
	for _, word := range words {
		all = append(all, strconv.Quote(word))
	}
	return all
}

// positive wants d to be greater than zero.
func (p *problems) positive(flag string, d time.Duration) {
	if d <= 0 {
		p.add(flag, d, "must be greater than 0")
	}
}

// notNegative wants d to be zero or more.
func (p *problems) notNegative(flag string, d time.Duration) {
	if d < 0 {
		p.add(flag, d, "must not be negative")
	}
}

// namespace wants name to be one that a namespace can have.
func (p *problems) namespace(flag, name string) {
	if msgs := validation.IsDNS1123Label(name); len(msgs) > 0 {
		p.add(flag, name, "must be the name of a namespace: "+msgs[0])
	}
}

// account wants --account to name a ServiceAccount.
func (p *problems) account(value string) {
	if namespace, name, ok := strings.Cut(value, "/"); !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		p.add("account", value, "must be a namespace and a name, such as kube-system/default")
	}
}

func isSpace(r rune) bool {
	return unicode.IsSpace(r)
}

// usageError is a mistake in the command line. It is printed as plain text with
// a pointer to the help, never logged, and never followed by the whole usage.
type usageError struct {
	err error
	// command is the path of the command whose help to point to.
	command string
}

func (e *usageError) Error() string {
	return e.err.Error()
}

func (e *usageError) Unwrap() error {
	return e.err
}

// invalidFlags makes one usageError of problems, or nil of none. A single one
// stays on one line.
func invalidFlags(command string, problems []error) error {
	switch len(problems) {
	case 0:
		return nil
	case 1:
		return &usageError{err: problems[0], command: command}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d problems with the flags:", len(problems))
	for _, p := range problems {
		fmt.Fprintf(&b, "\n  %v", p)
	}
	return &usageError{err: errors.New(b.String()), command: command}
}

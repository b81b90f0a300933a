// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Problems collects the errors of flags. Each has the form of those of kube-apiserver:
// --flag value must be something.
type Problems []error

// Add says what the value of a flag must be.
func (p *Problems) Add(flag string, value any, must string) {
	if s, ok := value.(string); ok {
		value = strconv.Quote(s)
	}
	*p = append(*p, fmt.Errorf("--%s %v %s", flag, value, must))
}

// OneOf adds an error if value is not one of choices.
func (p *Problems) OneOf(flag, value string, choices ...string) {
	if slices.Contains(choices, value) {
		return
	}
	must := "must be "
	if len(choices) > 1 {
		must += "one of "
	}
	p.Add(flag, value, must+strings.Join(Quoted(choices), ", "))
}

// EachOf adds an error for each of values that is not one of choices.
func (p *Problems) EachOf(flag string, values []string, choices ...string) {
	for _, value := range values {
		p.OneOf(flag, value, choices...)
	}
}

// Quoted returns the words in quotation marks.
func Quoted(words []string) []string {
	all := make([]string, 0, len(words))
	for _, word := range words {
		all = append(all, strconv.Quote(word))
	}
	return all
}

// Positive adds an error if d is not greater than zero.
func (p *Problems) Positive(flag string, d time.Duration) {
	if d <= 0 {
		p.Add(flag, d, "must be greater than 0")
	}
}

// NotNegative adds an error if d is negative.
func (p *Problems) NotNegative(flag string, d time.Duration) {
	if d < 0 {
		p.Add(flag, d, "must not be negative")
	}
}

// Namespace adds an error if name is not a valid name of a namespace.
func (p *Problems) Namespace(flag, name string) {
	if msgs := validation.IsDNS1123Label(name); len(msgs) > 0 {
		p.Add(flag, name, "must be the name of a namespace: "+msgs[0])
	}
}

// Account adds an error if the value of --account does not name a ServiceAccount.
func (p *Problems) Account(value string) {
	if namespace, name, ok := strings.Cut(value, "/"); !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		p.Add("account", value, "must be a namespace and a name, such as kube-system/default")
	}
}

// Asks reports a --context of a call that asks no cluster.
func (p *Problems) Asks(cluster bool, context string) {
	if !cluster && context != "" {
		p.Add("context", context, "must be left out: this call asks no cluster")
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"

	"github.com/spf13/cobra"
)

// outputOptions are the flag of a command that prints in several formats.
type outputOptions struct {
	format  string
	formats []string
}

// addFlag gives the command --output, which takes one of the formats and is the first of them by default.
func (o *outputOptions) addFlag(cmd *cobra.Command, formats ...string) {
	o.format, o.formats = formats[0], formats
	names, last := quoted(formats), len(formats)-1
	cmd.Flags().StringVarP(&o.format, "output", "o", o.format, "Format: "+strings.Join(names[:last], ", ")+" or "+names[last]+".")
	addCompletion(cmd, "output", formats...)
}

func (o *outputOptions) validate() []error {
	var p problems
	p.oneOf("output", o.format, o.formats...)
	return p
}

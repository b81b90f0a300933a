// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version is the command that prints the version of the program.
package version

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	componentversion "k8s.io/component-base/version"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/internal/printers"
)

// NewCommand prints the version for people or for programs. It is what "make build" has the linker
// write into component-base, where the metrics find it too.
func NewCommand() *cobra.Command {
	var output cli.Output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		RunE: cli.WhenValid(output.Validate, func(cmd *cobra.Command, _ []string) error {
			return writeTo(cmd.OutOrStdout(), output.Format, componentversion.Get())
		}),
	}
	output.AddFlag(cmd, "text", "json", "yaml")
	return cmd
}

func writeTo(w io.Writer, output string, info apimachineryversion.Info) error {
	document := struct {
		printers.Head
		apimachineryversion.Info
	}{printers.Of("Version"), info}
	return printers.Document(w, output, document, func() string {
		return fmt.Sprintf("%s %s\n  commit:   %s (%s)\n  built:    %s\n  go:       %s\n  platform: %s\n",
			options.ProgramName, info.GitVersion, info.GitCommit, info.GitTreeState, info.BuildDate, info.GoVersion, info.Platform)
	})
}

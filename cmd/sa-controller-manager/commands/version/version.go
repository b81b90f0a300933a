// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package version is the command that prints the version of the program.
package version

import (
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	componentversion "k8s.io/component-base/version"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/internal/printers"
)

// unstampedPrefix begins the version of a build that no linker flag stamped.
const unstampedPrefix = "v0.0.0-master+"

// Info is the version that the linker stamped into
// k8s.io/component-base/version, where the metrics find it too. A build that is
// not stamped, such as one by "go run", answers with what Go itself knows.
func Info() apimachineryversion.Info {
	info := componentversion.Get()
	if !strings.HasPrefix(info.GitVersion, unstampedPrefix) {
		return info
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		return unstamped(info, build)
	}
	return info
}

// unstamped replaces the placeholders of info by what Go noted in the binary.
func unstamped(info apimachineryversion.Info, build *debug.BuildInfo) apimachineryversion.Info {
	info.GitVersion, info.GitCommit, info.GitTreeState, info.BuildDate = "v0.0.0-devel", "unknown", "unknown", "unknown"
	if strings.HasPrefix(build.Main.Version, "v") {
		info.GitVersion = build.Main.Version
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			info.GitCommit = s.Value
		case "vcs.modified":
			info.GitTreeState = map[string]string{"true": "dirty", "false": "clean"}[s.Value]
		}
	}
	return info
}

// NewCommand prints the version for people or for programs.
func NewCommand() *cobra.Command {
	var output cli.Output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.InvalidFlags(cmd.CommandPath(), output.Validate()); err != nil {
				return err
			}
			return writeTo(cmd.OutOrStdout(), output.Format, Info())
		},
	}
	output.AddFlag(cmd, "text", "json", "yaml")
	return cmd
}

func writeTo(w io.Writer, output string, info apimachineryversion.Info) error {
	return printers.Document(w, output, "version", info, func() string {
		return fmt.Sprintf("%s %s\n  commit:   %s (%s)\n  built:    %s\n  go:       %s\n  platform: %s\n",
			options.ProgramName, info.GitVersion, info.GitCommit, info.GitTreeState, info.BuildDate, info.GoVersion, info.Platform)
	})
}

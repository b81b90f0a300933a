// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// refuseContents refuses arguments that hold the content of a key, a certificate or a
// kubeconfig where a path belongs, as --some-file="$(cat sa.key)" does. Every later word
// about such an argument would repeat the key: in an error, in the log, on /flagz.
func refuseContents(root *cobra.Command, args []string) error {
	at := slices.IndexFunc(args, func(arg string) bool { return isContent(arg) || strings.Contains(arg, "\n") })
	if at < 0 {
		return nil
	}
	mistake := "has several lines and must have one, a path if a file is meant"
	if isContent(args[at]) {
		mistake = "has the content of a PEM file or of a kubeconfig in it and must have the path of the file"
	}
	return &UsageError{Command: root.CommandPath(), Err: fmt.Errorf(
		"%s %s; other users of this machine may have seen what was given", lastFlag(root, args[:at+1]), mistake)}
}

// isContent knows PEM by its beginning, in base64 too wherever that begins, and a
// kubeconfig by what it has in its first line.
func isContent(arg string) bool {
	signs := []string{"-----BEGIN", "LS0tLS1CRUdJTi", "LS0tQkVHSU", "LS0tLUJFR0lO", "apiVersion:", `apiVersion":`}
	return slices.ContainsFunc(signs, func(sign string) bool { return strings.Contains(arg, sign) })
}

// lastFlag is the flag that the last of args belongs to, as far as that can be told: the
// shell cuts what is not quoted at each blank, so it may be far before. It is named only
// if there is one of that name. Anything else may be a part of the key, as where the '='
// was forgotten.
func lastFlag(root *cobra.Command, args []string) string {
	for _, arg := range slices.Backward(args) {
		given, ok := strings.CutPrefix(arg, "--")
		if !ok || strings.HasPrefix(given, "-") { // of PEM, or of YAML
			continue
		}
		given = strings.ReplaceAll(given, "_", "-")
		var longest string
		for _, name := range flagNames(root) {
			if strings.HasPrefix(given, name) && len(name) > len(longest) {
				longest = name
			}
		}
		if longest == "" {
			break
		}
		return "--" + longest
	}
	return "an argument"
}

// flagNames are those of cmd and of all commands below it.
func flagNames(cmd *cobra.Command) []string {
	var names []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) { names = append(names, flag.Name) })
	for _, sub := range cmd.Commands() {
		names = append(names, flagNames(sub)...)
	}
	return names
}

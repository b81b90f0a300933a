// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
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
	return &usageError{command: programName, err: fmt.Errorf(
		"%s %s; other users of this machine may have seen what was given", lastFlag(root, args[:at+1]), mistake)}
}

// isContent knows PEM by its beginning, in base64 too wherever that begins, and a
// kubeconfig by what it has in its first line.
func isContent(arg string) bool {
	for _, sign := range []string{"-----BEGIN", "LS0tLS1CRUdJTi", "LS0tQkVHSU", "LS0tLUJFR0lO", "apiVersion:", `apiVersion":`} {
		if strings.Contains(arg, sign) {
			return true
		}
	}
	return false
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

// unknownFlag adds to pflag's error about a flag that there is not the flags that may
// have been meant.
func unknownFlag(flags *pflag.FlagSet, err error) error {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return err
	}
	similar := similarFlags(flags, unknown.GetSpecifiedName())
	if len(similar) == 0 {
		return err
	}
	return fmt.Errorf("%w; did you mean --%s?", err, strings.Join(similar, " or --"))
}

// similarFlags are those that begin with name, or are it but for a slip or two.
func similarFlags(flags *pflag.FlagSet, name string) []string {
	const shortest, slips = 5, 2
	if len(name) < shortest {
		return nil
	}
	var similar []string
	flags.VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden && (strings.HasPrefix(flag.Name, name) || distance(flag.Name, name) <= slips) {
			similar = append(similar, flag.Name)
		}
	})
	const most = 3
	return similar[:min(len(similar), most)]
}

// distance is how many letters have to be put in, left out or replaced to make one word
// of the other (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// refuseContents refuses arguments that hold the content of a key or certificate file
// where its path belongs, as --some-file="$(cat sa.key)" does. Every later word about
// such an argument would repeat the key: in an error, in the log, on /flagz.
func refuseContents(args []string) error {
	at := slices.IndexFunc(args, func(arg string) bool { return strings.Contains(arg, "-----BEGIN") })
	if at < 0 {
		return nil
	}
	// The shell cuts what is not quoted at each blank, so the flag may be far before.
	flag := "an argument"
	for _, arg := range args[:at+1] {
		if name, _, _ := strings.Cut(arg, "="); strings.HasPrefix(name, "--") && !strings.HasPrefix(name, "-----") {
			flag = name
		}
	}
	return &usageError{command: programName, err: fmt.Errorf(
		"%s has the content of a PEM file in it and must have the path of the file; other users of this machine may have seen what was given", flag)}
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

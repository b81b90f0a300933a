// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Ask asks the user a question that is answered with yes or no. Terminal is false, and nothing is asked, if
// stdin is none.
func Ask(ctx context.Context, stdin io.Reader, stderr io.Writer, question string) (yes, terminal bool) {
	file, ok := stdin.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return false, false
	}
	fmt.Fprintf(stderr, "%s [y/N] ", question)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(file).ReadString('\n') // the end of the input means no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case word := <-answer:
		return word == "y" || word == "yes", true
	case <-ctx.Done():
		return false, true
	}
}

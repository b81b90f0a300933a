// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command typecheck checks the types of packages as GOOS and GOARCH select their files. It reads what they import from
// source, so for another system it needs a tenth of the time of go vet, which compiles all of that first.
package main

import (
	"fmt"
	"os"

	"golang.org/x/tools/go/packages"
)

func main() {
	// Without NeedDeps types would come from compiled packages.
	mode := packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
		packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedTypesSizes | packages.NeedModule
	checked, err := packages.Load(&packages.Config{Mode: mode}, os.Args[1:]...)
	if err != nil || len(checked) == 0 {
		fmt.Fprintf(os.Stderr, "no packages %q: %v\n", os.Args[1:], err)
		os.Exit(1)
	}
	if packages.PrintErrors(checked) > 0 {
		os.Exit(1)
	}
}

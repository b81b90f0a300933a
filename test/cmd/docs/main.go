// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command docs prints what is generated from the product's own tables: docs/flags.md, and the roles
// below manifests/permissions.
package main

import (
	"fmt"
	"io"
	"os"
	"slices"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/options/secureport"
	"sa-controller-manager/cmd/sa-controller-manager/app/permissions"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

func run(args []string, w io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("got %d arguments, want one: flags, or a file of roles", len(args))
	}
	var text string
	var err error
	switch args[0] {
	case "flags":
		text = flagsPage(managerFlags())
	case "roles":
		text, err = roles(permissions.StandardRules(options.New()))
	case string(permissions.TokenSecrets), "options":
		rules := permissions.OptionalRules()
		text, err = roles(slices.DeleteFunc(rules, func(r permissions.Rule) bool {
			return r.Part == permissions.Signer || (r.Part == permissions.TokenSecrets) != (args[0] == string(permissions.TokenSecrets))
		}))
	case string(permissions.Signer):
		text, err = signerRoles()
	default:
		return fmt.Errorf("%q is none of: flags, roles, token-secrets, options, signer", args[0])
	}
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, text)
	return err
}

// signerRoles has all that "sa-controller-manager signer" needs.
func signerRoles() (string, error) {
	o := secureport.NewSigner()
	o.Keys.KeyRing, o.Keys.Issuers = "ring.json", []string{"https://issuer"}
	rules, err := permissions.Rules(o)
	if err != nil {
		return "", err
	}
	return roles(rules)
}

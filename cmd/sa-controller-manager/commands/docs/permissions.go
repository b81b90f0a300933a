// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"

	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/preflight"
)

// newPermissionsCommand generates what is below manifests/permissions.
func newPermissionsCommand() *cobra.Command {
	optional := false
	cmd := &cobra.Command{
		Use:   "permissions",
		Short: "Print manifests/permissions/roles.yaml",
		Args:  cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rules := preflight.StandardRules(options.New())
			if optional {
				rules = preflight.OptionalRules()
			}
			text, err := preflight.Manifest(rules)
			fmt.Fprint(cmd.OutOrStdout(), text)
			return err
		},
	}
	cmd.Flags().BoolVar(&optional, "options", optional, "Print manifests/permissions/options/roles.yaml instead.")
	return cmd
}

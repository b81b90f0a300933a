// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tokens is the parent of the commands that show tokens. They need no running manager.
package tokens

import (
	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
)

// NewCommand returns the command with its sub-commands.
func NewCommand(client cli.ClientFunc) *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "tokens",
		Short: "Inspect a token, or audit the long-lived tokens of a cluster",
		Args:  cli.NoTokens,
	}, NewInspectCommand(client), NewAuditCommand(client))
}

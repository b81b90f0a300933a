// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tokens is the parent of the commands that show tokens. They need no running manager.
package tokens

import (
	"github.com/spf13/cobra"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/tokens/audit"
	"sa-controller-manager/cmd/sa-controller-manager/commands/tokens/inspect"
)

// NewCommand is the parent with the commands below it.
func NewCommand(client cli.ClientFunc) *cobra.Command {
	return cli.Parent(&cobra.Command{
		Use:   "tokens",
		Short: "Look into a token, or list the long-lived ones of a cluster and what is wrong with them",
		Args:  cli.NoTokens,
	}, inspect.NewCommand(client), audit.NewCommand(client))
}

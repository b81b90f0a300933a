// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/resolve"
)

// ClientFunc makes the client of a command that sends a few requests.
type ClientFunc func(o *options.Connection) (kubernetes.Interface, error)

// AddConnectionFlags gives a command of a few requests the flags that say where to. The
// other ones are about many requests.
func AddConnectionFlags(cmd *cobra.Command, o *options.Connection) {
	*o = options.NewConnection()
	options.AddSome(cmd.Flags(), map[string]string{"kubeconfig": "", "master": ""}, o)
	cmd.Flags().StringVar(&o.Context, "context", o.Context, "`Context` of the kubeconfig. Without it, its current one.")
}

// Connect makes a real client.
func Connect(o *options.Connection) (kubernetes.Interface, error) {
	config, err := resolve.ClientConfig(o)
	if err != nil {
		return nil, err
	}
	return NewClient(config)
}

// NewClient makes a client of what resolve.Tune returned.
func NewClient(config *rest.Config) (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("build the API client: %w", err)
	}
	return client, nil
}

// AnswerWithin bounds all requests of a command.
func AnswerWithin(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
}

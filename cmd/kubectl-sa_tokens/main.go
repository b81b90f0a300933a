// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-sa_tokens is the kubectl plugin "kubectl sa-tokens": those commands of
// sa-controller-manager that only read a cluster, with kubectl's flags and kubectl's kubeconfig. It
// does not link the manager, and is built for macOS and Windows too.
package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubeconfigs name these
	"k8s.io/client-go/tools/clientcmd"
	componentversion "k8s.io/component-base/version"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/resolve"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/doctor"
	"sa-controller-manager/cmd/sa-controller-manager/commands/keys"
	"sa-controller-manager/cmd/sa-controller-manager/commands/tokens"
)

const description = `Audit and inspect the ServiceAccount tokens of a cluster, and find problems with them. Each
command is the same as in sa-controller-manager and only reads; but "inspect --cluster" counts
as a use of the token: kube-apiserver sets the last-used label of its Secret to today.

The cluster is that of kubectl: of KUBECONFIG, ~/.kube/config or --kubeconfig, and of its
current context or --context.`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process immediately
	os.Exit(cli.Execute(ctx, newCommand(os.Stdout, os.Stderr), os.Args[1:], os.Stderr))
}

func newCommand(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:               "kubectl-sa_tokens",
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl sa-tokens"},
		Short:             "Audit and inspect ServiceAccount tokens",
		Long:              description,
		Version:           componentversion.Get().GitVersion,
		Args:              cli.NoTokens,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}, // kubectl has one
	}
	cli.SetUpRoot(root, stdout, stderr)
	overrides := &clientcmd.ConfigOverrides{}
	clientcmd.BindOverrideFlags(overrides, root.PersistentFlags(), overrideFlags())
	client := func(o *options.Connection) (kubernetes.Interface, error) { return connect(o, *overrides) }
	return cli.Parent(root, adapt(tokens.NewAuditCommand(client)), adapt(tokens.NewInspectCommand(client)),
		adapt(doctor.NewCommand(client)), adapt(keys.NewJWKSCommand(client)))
}

// overrideFlags are kubectl's flags of how to reach a cluster, without those that the commands have
// themselves or mean something else by, and without those that put a secret into the list of
// processes.
func overrideFlags() clientcmd.ConfigOverrideFlags {
	flags := clientcmd.RecommendedConfigOverrideFlags("")
	none := clientcmd.FlagInfo{}
	flags.CurrentContext, flags.ClusterOverrideFlags.APIServer = none, none
	flags.ContextOverrideFlags = clientcmd.ContextOverrideFlags{}
	flags.AuthOverrideFlags.Token, flags.AuthOverrideFlags.Username, flags.AuthOverrideFlags.Password = none, none, none
	return flags
}

// connect makes a client of the cluster that kubectl would use.
func connect(o *options.Connection, overrides clientcmd.ConfigOverrides) (kubernetes.Interface, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	overrides.CurrentContext, overrides.ClusterInfo.Server = o.Context, o.Master
	kubeconfig := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &overrides)
	config, err := kubeconfig.ClientConfig()
	if clientcmd.IsEmptyConfig(err) { // its words are about another environment variable
		return nil, errors.New("there is no cluster: no kubeconfig has a current context; give --context or --kubeconfig, or set " +
			"KUBECONFIG")
	}
	if err != nil {
		return nil, err
	}
	resolve.NameCluster(kubeconfig, config, o)
	return cli.NewClient(resolve.Tune(config, o))
}

// adapt gives a command of the product kubectl's names for its flags, and the plugin's name for
// itself.
func adapt(cmd *cobra.Command) *cobra.Command {
	flags := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		switch flag.Name {
		case "kubeconfig":
			flag.Usage = "Path to the kubeconfig `file` to use."
		case "master":
			flag.Name, flag.Shorthand, flag.Usage = "server", "s",
				"Address and port of kube-apiserver, as a `URL`. Overrides the kubeconfig's."
		}
		flags.AddFlag(flag)
	})
	cmd.ResetFlags()
	cmd.Flags().AddFlagSet(flags)
	for _, parent := range []string{"tokens ", "keys ", ""} {
		cmd.Example = strings.ReplaceAll(cmd.Example, options.ProgramName+" "+parent+cmd.Name(), "kubectl sa-tokens "+cmd.Name())
	}
	return cmd
}

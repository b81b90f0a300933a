// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

// ContactTimeout bounds a request that finds out whether the API server answers, so that a
// connection that hangs is an error too.
const ContactTimeout = 5 * time.Second

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
	config, err := locate(o)
	if err != nil {
		return nil, err
	}
	return NewClient(config, o)
}

// NewClient makes a client of config, with what o says about requests.
func NewClient(config *rest.Config, o *options.Connection) (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(tune(config, o))
	if err != nil {
		return nil, fmt.Errorf("build the API client: %w", err)
	}
	return client, nil
}

// ClientConfig says how to reach the API server. Nothing is sent yet.
func ClientConfig(o *options.Connection) (*rest.Config, error) {
	config, err := locate(o)
	if err != nil {
		return nil, err
	}
	return tune(config, o), nil
}

func tune(config *rest.Config, o *options.Connection) *rest.Config {
	config.QPS, config.Burst = o.QPS, int(o.Burst)
	config.ContentType = o.ContentType
	return rest.AddUserAgent(config, options.ProgramName)
}

// locate does not leave it to clientcmd to fall back from one source to another:
// its last resort is an apiserver on localhost:8080, which hides the mistake.
func locate(o *options.Connection) (*rest.Config, error) {
	if o.Kubeconfig == "" && o.Context != "" {
		return nil, fmt.Errorf("--context %q must come with --kubeconfig, which has it", o.Context)
	}
	if o.Kubeconfig == "" && o.Master == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("neither --kubeconfig nor --master is given, and this is not a Pod with a ServiceAccount token: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: o.Kubeconfig},
		&clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: o.Master}, CurrentContext: o.Context}).ClientConfig()
	if clientcmd.IsEmptyConfig(err) { // its words are about an environment variable that has no effect here
		return nil, fmt.Errorf("--kubeconfig %q: it must have a current-context that names a cluster; \"kubectl config use-context\" sets it", o.Kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %q: %w", o.Kubeconfig, err)
	}
	return config, nil
}

// AnswerWithin bounds all requests of a command.
func AnswerWithin(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %s", limit))
}

// ServerVersion asks for /version, which is answered as soon as anything is. The
// typed call for it takes no context.
func ServerVersion(ctx context.Context, client kubernetes.Interface) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, ContactTimeout)
	defer cancel()
	body, err := Getter(client)(ctx, "/version")
	if err != nil {
		return "", err
	}
	var info version.Info
	if err := json.Unmarshal(body, &info); err != nil {
		return "", fmt.Errorf("read /version: %w", err)
	}
	return info.GitVersion, nil
}

// Getter reads a path of the API server.
func Getter(client kubernetes.Interface) func(context.Context, string) ([]byte, error) {
	return func(ctx context.Context, path string) ([]byte, error) {
		answer := client.Discovery().RESTClient().Get().AbsPath(path).Do(ctx)
		// Raw leaves the words of a refusal undecoded.
		if err := answer.Error(); err != nil {
			return nil, err
		}
		return answer.Raw()
	}
}

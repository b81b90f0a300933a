// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package resolve reads the files that flags name, as the manager and its commands both do: package options has plain
// values only. No request is sent here.
package resolve

import (
	"cmp"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

// ClientConfig returns how to reach the API server.
func ClientConfig(o *options.Connection) (*rest.Config, error) {
	config, err := locate(o)
	if err != nil {
		return nil, err
	}
	return Tune(config, o), nil
}

// Tune sets what the flags say about requests. Nothing logs warnings of the API server: an admission policy
// may quote a written Secret in one.
func Tune(config *rest.Config, o *options.Connection) *rest.Config {
	config.WarningHandler = rest.NoWarnings{}
	config.QPS, config.Burst = o.QPS, int(o.Burst)
	config.ContentType = o.ContentType
	if o.DryRun {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return dryRun{next} })
	}
	return rest.AddUserAgent(config, options.ProgramName)
}

// dryRun adds dryRun=All to each request that may write.
type dryRun struct{ http.RoundTripper }

func (d dryRun) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet {
		request = request.Clone(request.Context())
		query := request.URL.Query()
		query.Set("dryRun", metav1.DryRunAll)
		request.URL.RawQuery = query.Encode()
	}
	return d.RoundTripper.RoundTrip(request)
}

// locate does not leave it to clientcmd to fall back from one source to another:
// its last resort is an apiserver on localhost:8080, which hides the mistake.
func locate(o *options.Connection) (*rest.Config, error) {
	if o.Kubeconfig == "" && o.Context != "" && len(o.Found) == 0 {
		return nil, fmt.Errorf("--context %q must come with --kubeconfig, which has it", o.Context)
	}
	if o.Kubeconfig == "" && o.Master == "" && len(o.Found) == 0 {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("neither --kubeconfig nor --master is given, and this is not a Pod with a ServiceAccount token: %w", err)
		}
		o.Cluster = config.Host
		return config, nil
	}
	kubeconfig := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: o.Kubeconfig, Precedence: o.Found},
		&clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: o.Master}, CurrentContext: o.Context})
	name := fmt.Sprintf("--kubeconfig %q", o.Kubeconfig)
	if o.Kubeconfig == "" {
		name = fmt.Sprintf("kubeconfig %q", strings.Join(o.Found, string(filepath.ListSeparator)))
	}
	config, err := kubeconfig.ClientConfig()
	if clientcmd.IsEmptyConfig(err) { // its words are about an environment variable that has no effect here
		return nil, fmt.Errorf("%s: it must have a current-context that names a cluster; \"kubectl config use-context\" sets it", name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	NameCluster(kubeconfig, config, o)
	return config, nil
}

// NameCluster names the cluster of a kubeconfig, by context and URL: kubeadm gives every cluster the same context.
func NameCluster(kubeconfig clientcmd.ClientConfig, config *rest.Config, o *options.Connection) {
	raw, _ := kubeconfig.RawConfig() // it could be read for config
	o.Cluster = strings.TrimSpace(cmp.Or(o.Context, raw.CurrentContext) + " " + config.Host)
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
)

// StartAPIServer starts kube-apiserver and returns when it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if c.apiServer != nil && c.apiServer.running() {
		return errors.New("start kube-apiserver: it is running")
	}
	path, err := ControlPlaneBinary("kube-apiserver")
	if err != nil {
		return err
	}
	if c.apiServer, err = c.host.start("kube-apiserver", path, c.dir, c.apiServerArgs(), nil, c.options.Log); err != nil {
		return err
	}
	return c.AwaitAPIServer(ctx)
}

// AwaitAPIServer returns when kube-apiserver says that it is ready, and with an
// error when it or etcd ends instead.
func (c *Cluster) AwaitAPIServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	probe, err := newProbe(c.admin)
	if err != nil {
		return err
	}
	if err := probe.awaitOK(ctx, "/readyz", c.apiServer, c.etcd); err != nil {
		return err
	}
	return c.awaitOwnObjects(ctx)
}

// APIServerPID is the ID of kube-apiserver's process.
func (c *Cluster) APIServerPID() int { return c.apiServer.PID() }

// KillAPIServer ends kube-apiserver at once.
func (c *Cluster) KillAPIServer() error {
	_, err := c.apiServer.Kill()
	return err
}

// APIServerMetrics reads kube-apiserver's metrics.
func (c *Cluster) APIServerMetrics(ctx context.Context) (Metrics, error) {
	probe, err := newProbe(c.admin)
	if err != nil {
		return nil, err
	}
	return probe.Metrics(ctx)
}

// apiServerArgs renders the default flags with the caller's laid over them, in
// the order of their names.
func (c *Cluster) apiServerArgs() []string {
	flags := c.defaultAPIServerFlags()
	if c.options.ExternalSigner {
		// It does not start if the key flags are there, be they empty.
		delete(flags, "service-account-signing-key-file")
		delete(flags, "service-account-key-file")
		flags["service-account-signing-endpoint"] = []string{c.SignerSocket()}
	}
	maps.Copy(flags, c.options.APIServerFlags)
	var args []string
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		for _, value := range flags[name] {
			args = append(args, "--"+name+"="+value)
		}
	}
	return args
}

func (c *Cluster) defaultAPIServerFlags() map[string][]string {
	return map[string][]string{
		"etcd-servers":      {c.etcdURL()},
		"bind-address":      {loopback},
		"advertise-address": {loopback},
		"secure-port":       {strconv.Itoa(c.apiServerPort)},
		// An Endpoints object may not hold a loopback address, so kube-apiserver must
		// not try to announce itself.
		"endpoint-reconciler-type": {"none"},
		"service-cluster-ip-range": {"10.0.0.0/24"},
		"allow-privileged":         {"true"},
		"profiling":                {"false"},

		"cert-dir":             {c.dir},
		"tls-cert-file":        {c.path("kube-apiserver.crt")},
		"tls-private-key-file": {c.path("kube-apiserver.key")},
		"client-ca-file":       {c.path("client-ca.crt")},
		"authorization-mode":   {"RBAC"},
		// As kubeadm has them.
		"requestheader-client-ca-file":       {c.ProxyCAFile()},
		"requestheader-allowed-names":        {"front-proxy-client"},
		"requestheader-username-headers":     {"X-Remote-User"},
		"requestheader-group-headers":        {"X-Remote-Group"},
		"requestheader-extra-headers-prefix": {"X-Remote-Extra-"},

		// The product replaces it.
		"disable-admission-plugins": {"ServiceAccount"},

		"service-account-issuer":           {c.Issuer()},
		"service-account-signing-key-file": {c.SigningKeyFile()},
		"service-account-key-file":         append([]string{c.SigningKeyFile()}, c.options.ExtraKeyFiles...),
	}
}

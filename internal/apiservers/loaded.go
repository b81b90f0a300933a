// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package apiservers

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
)

// loadedMetric is kube-apiserver's own: which files its plugins have loaded.
const loadedMetric = "apiserver_manifest_admission_config_controller_last_config_info"

// maxMetricLine is more than a line of loadedMetric has.
const maxMetricLine = 1 << 20

// LoadedFiles returns a function that returns the hash of the configurations that the kube-apiserver of
// host has loaded from files, by admission plugin. An answer of another one is an error: its files are
// others.
func LoadedFiles(client kubernetes.Interface, host string) func(context.Context) (map[string]string, error) {
	return func(ctx context.Context) (map[string]string, error) {
		leases, err := identities(ctx, client)
		if err != nil {
			return nil, err
		}
		own := map[string]bool{}
		for _, identity := range leases {
			if identity.Labels[corev1.LabelHostname] == host {
				own[fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(identity.Name)))] = true
			}
		}
		body, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").SetHeader("Accept", "text/plain").Stream(ctx)
		if err != nil {
			return nil, fmt.Errorf("read /metrics: %w", err)
		}
		defer body.Close()
		loaded, err := readLoaded(body, own)
		if err != nil {
			return nil, fmt.Errorf("read /metrics of the kube-apiserver of host %s: %w", host, err)
		}
		return loaded, nil
	}
}

// readLoaded returns the hashes by plugin. The kube-apiserver must be one of own, by the hash of its
// identity.
func readLoaded(metrics io.Reader, own map[string]bool) (map[string]string, error) {
	var series bytes.Buffer
	lines := bufio.NewScanner(metrics)
	lines.Buffer(nil, maxMetricLine)
	for lines.Scan() {
		if bytes.HasPrefix(lines.Bytes(), []byte(loadedMetric+"{")) {
			series.Write(append(lines.Bytes(), '\n'))
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&series)
	if err != nil {
		return nil, err
	}
	loaded := map[string]string{}
	for _, one := range families[loadedMetric].GetMetric() {
		labels := map[string]string{}
		for _, label := range one.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		if !own[labels["apiserver_id_hash"]] {
			return nil, fmt.Errorf("another kube-apiserver answers: the kubeconfig must have the address of this host's own, " +
				"not that of a load balancer")
		}
		loaded[labels["plugin"]] = labels["hash"]
	}
	return loaded, nil
}

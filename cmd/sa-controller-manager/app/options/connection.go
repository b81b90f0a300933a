// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"math"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
)

// Connection has the flags of the connection to the API server.
type Connection struct {
	// Kubeconfig and Master may both be empty: then the in-cluster
	// configuration is used.
	Kubeconfig string
	// Found are kubeconfigs to merge in the place of Kubeconfig. The commands alone have some.
	Found  []string
	Master string
	// Context of the kubeconfig; empty is its current one. The commands alone have a flag for it.
	Context string
	// DryRun has the API server check each write and store none. The commands alone have a flag for it.
	DryRun bool
	// Cluster says to people which cluster was connected to. Connecting sets it.
	Cluster string
	// QPS is the client-side limit in requests a second; negative means none.
	QPS float32
	// Burst is the burst above QPS.
	Burst int32
	// ContentType of request and response bodies; empty is client-go's default.
	ContentType string
}

// NewConnection returns the defaults of the group.
func NewConnection() Connection {
	return Connection{
		QPS:         -1,
		Burst:       30,
		ContentType: runtime.ContentTypeProtobuf,
	}
}

// AddFlags binds the group to fs.
func (o *Connection) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"Kubeconfig `file`. Without it and --master, the in-cluster configuration.")
	fs.StringVar(&o.Master, "master", o.Master, "`URL` of kube-apiserver. Overrides the one in the kubeconfig.")
	fs.Float32Var(&o.QPS, "kube-api-qps", o.QPS,
		"Limit of requests a second to kube-apiserver. -1 means none: API priority and fairness protects it. 0 means 5.")
	fs.Int32Var(&o.Burst, "kube-api-burst", o.Burst,
		"Burst of requests above --kube-api-qps, if that is a limit. 0 means 10.")
	fs.StringVar(&o.ContentType, "kube-api-content-type", o.ContentType,
		"Content type of requests to kube-apiserver: \"application/vnd.kubernetes.protobuf\" or \"application/json\".")

	SetOrigin(fs, asKCM, "kubeconfig", "master", "kube-api-burst", "kube-api-content-type")
	SetOrigin(fs, asKCM+", where the default is 20", "kube-api-qps")
}

// Validate returns every problem of the group.
func (o *Connection) Validate() []error {
	var p Problems
	if qps := float64(o.QPS); math.IsNaN(qps) || math.IsInf(qps, 0) {
		p.Add("kube-api-qps", o.QPS, "must be a finite number; -1 means no limit")
	}
	if o.Burst < 0 {
		p.Add("kube-api-burst", o.Burst, "must not be negative")
	}
	// An unset variable in a template expands to an empty value; KCM accepts it, and client-go then
	// uses JSON.
	if o.ContentType != "" {
		p.OneOf("kube-api-content-type", o.ContentType, runtime.ContentTypeProtobuf, runtime.ContentTypeJSON)
	}
	return p
}

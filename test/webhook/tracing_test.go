// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"net"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/devcluster"
)

// span is what a collector gets of one.
type span struct {
	service, name, trace, id, parent string
	attributes                       int
}

// spans is an OTLP collector that passes on every span that it gets.
type spans struct {
	collector.UnimplementedTraceServiceServer

	received chan span
	done     <-chan struct{}
}

func (s *spans) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	for _, resource := range request.GetResourceSpans() {
		service := attribute(resource.GetResource().GetAttributes(), "service.name")
		for _, scope := range resource.GetScopeSpans() {
			for _, one := range scope.GetSpans() {
				select {
				case s.received <- span{
					service, one.GetName(), string(one.GetTraceId()), string(one.GetSpanId()), string(one.GetParentSpanId()),
					len(one.GetAttributes()),
				}:
				case <-s.done:
				}
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func attribute(of []*common.KeyValue, key string) string {
	for _, one := range of {
		if one.GetKey() == key {
			return one.GetValue().GetStringValue()
		}
	}
	return ""
}

// TestTracing has one trace of the creation of a Pod: kube-apiserver's span of the call is the parent of ours.
func TestTracing(t *testing.T) {
	t.Parallel()
	listener := testutil.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	got := &spans{received: make(chan span), done: t.Context().Done()}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, got)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	configured := func(version, more string) string {
		return testutil.WriteFile(t, "tracing.yaml", fmt.Appendf(nil, "apiVersion: apiserver.config.k8s.io/%s\nkind: "+
			"TracingConfiguration\nendpoint: %s\n%s", version, listener.Addr(), more))
	}
	started := testutil.Get(devcluster.Start(t.Context(), devcluster.Options{APIServerFlags: map[string][]string{
		"tracing-config-file": {configured("v1beta1", "samplingRatePerMillion: 1000000\n")},
	}}))(t)
	c := &cluster{Cluster: started}
	c.connect(t)
	t.Cleanup(func() {
		c.idle()
		testutil.Must(t, c.Stop())
	})
	c.manage(t, "--tracing-config-file="+configured("v1", ""))
	known := map[string]span{} // of kube-apiserver, by ID
	var ours []span
	ended := limited(t).Done()
	for {
		select {
		case one := <-got.received:
			if one.service == "sa-controller-manager" {
				if ours = append(ours, one); len(ours) == 1 { // kube-apiserver drops most spans of its first seconds
					c.create(t, metav1.NamespaceDefault, newPod())
				}
			} else {
				known[one.id] = one
			}
		case <-ended:
			t.Fatalf("of %d spans of the webhook and %d of kube-apiserver none belong together", len(ours), len(known))
		}
		for _, one := range ours {
			parent, found := known[one.parent]
			if caller := known[parent.parent]; found && caller.name == "Call mutating webhook" {
				testutil.Check(t, "the trace", caller.trace, one.trace)
				// While the collector is away they are kept, and a caller may send 64 KiB of path and headers.
				testutil.Check(t, "attributes of the request in our span", 0, one.attributes)
				return
			}
		}
	}
}

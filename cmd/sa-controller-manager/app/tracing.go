// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	upstream "k8s.io/apiserver/pkg/server/options"
	"k8s.io/component-base/tracing"
	tracingapi "k8s.io/component-base/tracing/api/v1"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

// traced returns the handler of the webhook with a span around each call, in the trace of kube-apiserver's own span.
// The file is read once, as by kube-apiserver. Spans of the last five seconds of the process may be lost.
func traced(handler http.Handler, file string) (http.Handler, error) {
	if file == "" {
		return handler, nil
	}
	config, err := upstream.ReadTracingConfiguration(file)
	if err == nil {
		err = tracingapi.ValidateTracingConfiguration(config, nil, nil).ToAggregate()
	}
	var provider tracing.TracerProvider
	if err == nil {
		name := resource.WithAttributes(attribute.String("service.name", options.ProgramName))
		provider, err = tracing.NewProvider(context.Background(), config, nil, []resource.Option{name})
	}
	if err != nil {
		return nil, fmt.Errorf("--tracing-config-file: %w", err)
	}
	return tracing.WithTracing(handler, provider, "webhook"), nil
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	upstream "k8s.io/apiserver/pkg/server/options"
	"k8s.io/component-base/tracing"
	tracingapi "k8s.io/component-base/tracing/api/v1"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

// spansTimeout is how long the last spans may take at the end of the process.
const spansTimeout = 5 * time.Second

// trace returns the handler of the webhook with a span around each call, in the trace of kube-apiserver's own span.
// The file is read once, as kube-apiserver does.
func (w *webhook) trace(file string, handler http.Handler) (http.Handler, error) {
	if file == "" {
		return handler, nil
	}
	config, err := upstream.ReadTracingConfiguration(file)
	if err == nil {
		err = tracingapi.ValidateTracingConfiguration(config, nil, nil).ToAggregate()
	}
	if err != nil {
		return nil, fmt.Errorf("--tracing-config-file: %w", err)
	}
	name := resource.WithAttributes(attribute.String("service.name", options.ProgramName))
	provider, err := tracing.NewProvider(context.Background(), config, nil, []resource.Option{name})
	if err != nil {
		return nil, fmt.Errorf("--tracing-config-file: %w", err)
	}
	w.follow(AtOnce, func(ctx context.Context) error {
		<-ctx.Done()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), spansTimeout)
		defer cancel()
		_ = provider.Shutdown(last) // what no collector takes is lost
		return nil
	})
	return tracing.WithTracing(handler, provider, "ServiceAccount webhook"), nil
}

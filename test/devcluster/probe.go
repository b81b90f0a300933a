// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"sa-controller-manager/test/await"
)

// probe asks the health and metrics endpoints of one server.
type probe struct {
	client *http.Client
	url    string
}

func newProbe(config *rest.Config) (*probe, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	return &probe{client: client, url: strings.TrimSuffix(config.Host, "/")}, nil
}

// awaitOK returns once path answers 200, and with an error when ctx or one of
// the processes it depends on ends first.
func (p *probe) awaitOK(ctx context.Context, path string, processes ...*process) error {
	var ended error
	err := await.Poll(ctx, func(ctx context.Context) error {
		_, err := p.Get(ctx, path)
		for _, process := range processes {
			if err != nil && !process.running() {
				ended = process.unexpectedExit()
				return nil
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("await %s: %w", path, err)
	}
	return ended
}

// Get returns the body of an answer with status 200; any other is an error.
func (p *probe) Get(ctx context.Context, path string) (string, error) {
	// A server that hangs must not keep us from seeing that it recovered.
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		return "", fmt.Errorf("make a request for %s: %w", path, err)
	}
	response, err := p.client.Do(request)
	if err != nil {
		return "", err // it names method and URL
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("GET %s: %s: %s", path, response.Status, body)
	}
	return string(body), nil
}

// Metrics reads the server's metrics.
func (p *probe) Metrics(ctx context.Context) (Metrics, error) {
	body, err := p.Get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	return parseMetrics(body)
}

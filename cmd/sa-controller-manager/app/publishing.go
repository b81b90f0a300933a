// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"

	"k8s.io/component-base/metrics/legacyregistry"

	"sa-controller-manager/controllers/keypublisher"
	"sa-controller-manager/signing/publish"
)

// buildPublisher publishes the keys in directories of this host.
func (m *manager) buildPublisher(r *runnable) error {
	var directories []publish.Directory
	for _, text := range m.options.Publishing.Destinations {
		to, err := publish.Parse(text)
		if err != nil {
			return fmt.Errorf("--publish-keys %w", err)
		}
		directories = append(directories, to)
	}
	if len(directories) == 0 {
		return nil
	}
	publisher := keypublisher.New(keypublisher.Config{
		Directories: directories,
		Documents:   publish.Publisher{Issuer: m.options.Keys.Issuer()},
		Ring:        m.ring,
		Metrics:     keypublisher.NewMetrics(legacyregistry.MustRegister),
		Loops:       m.loops,
	})
	m.onRing = append(m.onRing, publisher.RingChanged)
	r.run = publisher.Run
	// The check never fails: nothing in the cluster depends on what is published.
	r.check = func() (string, error) { return publisher.Status(), nil }
	return nil
}

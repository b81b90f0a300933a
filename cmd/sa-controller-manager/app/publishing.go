// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"

	"k8s.io/component-base/metrics/legacyregistry"

	"sa-controller-manager/controllers/keypublisher"
	"sa-controller-manager/signing/publish"
)

// buildFilePublisher publishes the keys in directories of this host.
func (m *manager) buildFilePublisher(r *runnable) error {
	return m.buildPublisher(r, "_files", true)
}

// buildBucketPublisher publishes the keys in buckets, which all replicas share.
func (m *manager) buildBucketPublisher(r *runnable) error {
	return m.buildPublisher(r, "_buckets", false)
}

func (m *manager) buildPublisher(r *runnable, name string, perHost bool) error {
	var destinations []publish.Destination
	for _, text := range m.options.Publishing.Destinations {
		to, err := publish.Parse(text)
		if err != nil {
			return fmt.Errorf("--publish-keys %w", err)
		}
		if to.PerHost() == perHost {
			destinations = append(destinations, to)
		}
	}
	if len(destinations) == 0 {
		return nil
	}
	if m.publishMetrics == nil {
		m.publishMetrics = keypublisher.NewMetrics(legacyregistry.MustRegister)
	}
	publisher := keypublisher.New(keypublisher.Config{
		Name:         name,
		Destinations: destinations,
		Documents:    publish.Publisher{Issuer: m.options.Keys.Issuer(), MaxAge: m.options.Publishing.MaxAge},
		Ring:         m.ring,
		Recorder:     m.recorder,
		Process:      m.process,
		Metrics:      m.publishMetrics,
		Loops:        m.loops,
	})
	m.onRing = append(m.onRing, publisher.RingChanged)
	r.run = publisher.Run
	// The check never fails: nothing in the cluster depends on what is published.
	r.check = func() (string, error) { return publisher.Status(), nil }
	return nil
}

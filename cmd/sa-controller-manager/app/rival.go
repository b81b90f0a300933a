// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"k8s.io/component-base/metrics/legacyregistry"

	"sa-controller-manager/controllers/rival"
)

// secondController is what the leader runs beside the token controller, and the check
// that tells of it.
const secondController = "second-controller"

func (m *manager) buildRivalDetector() {
	m.rival = rival.New(rival.Config{
		View:     m.view,
		Keys:     m.ring,
		RootCA:   m.rootCA,
		Recorder: m.recorder,
		Process:  process(&m.options.LeaderElection),
		Metrics:  rival.NewMetrics(legacyregistry.MustRegister),
	})
	m.controllers = append(m.controllers, controller{secondController, m.rival.Run})
}

// rivalProbe never fails: the webhook's readiness must not depend on who else is there.
func (m *manager) rivalProbe() (detail string, err error) {
	if status := m.rival.Status(); status != "" {
		return "a second token controller is at work: " + status, nil
	}
	return "", nil
}

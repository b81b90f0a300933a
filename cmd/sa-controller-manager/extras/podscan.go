// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package extras

import (
	"sa-controller-manager/admission/podscan"
	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/app"
)

// buildPodScan builds the scan for Pods that the webhook has missed. A process that does not both run
// the ServiceAccount plugin and register the webhook does not know when to scan, nor what for.
func (e *extras) buildPodScan(p *app.Part) error {
	if e.PodConfig == nil || e.Options.Webhook.Registration == registration.None {
		return nil
	}
	scanner := podscan.NewScanner(podscan.ScannerConfig{
		Finder:   podscan.Finder{Client: e.Client, Config: *e.PodConfig},
		Process:  e.Process,
		Recorder: e.Recorder,
		Metrics:  podscan.NewMetrics(e.Registry.MustRegister),
		Loops:    e.Loops,
	})
	e.OnRegistration = append(e.OnRegistration, scanner.Registration)
	p.Run = scanner.Run
	return nil
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package extras

import (
	"sa-controller-manager/cmd/sa-controller-manager/app"
	"sa-controller-manager/controllers/keypublisher"
	"sa-controller-manager/signing/publish"
)

// buildPublisher publishes the keys in directories of this host.
func (e *extras) buildPublisher(p *app.Part) error {
	var directories []publish.Directory
	for _, path := range e.Options.Publishing.Directories() {
		directories = append(directories, publish.Directory(path))
	}
	if len(directories) == 0 {
		return nil
	}
	e.publisher = keypublisher.New(keypublisher.Config{
		Directories: directories,
		Documents:   publish.Publisher{Issuer: e.Options.Keys.Issuer()},
		Ring:        e.Keyring,
		Metrics:     keypublisher.NewMetrics(e.Registry.MustRegister),
		Loops:       e.Loops,
		Passed: func() {
			if e.hosts != nil {
				e.hosts.RingChanged()
			}
		},
	})
	e.OnRing = append(e.OnRing, e.publisher.RingChanged)
	p.Run = e.publisher.Run
	// The check never fails: nothing in the cluster depends on what is published.
	p.Check = func() (string, error) { return e.publisher.Status(), nil }
	return nil
}

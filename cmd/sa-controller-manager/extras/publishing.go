// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package extras

import (
	"sa-controller-manager/cmd/sa-controller-manager/app"
	"sa-controller-manager/controllers/keyring/relying"
)

// buildPublisher publishes the keys in directories of this host.
func (e *extras) buildPublisher(p *app.Part) error {
	var directories []relying.Directory
	for _, path := range p.Options.Publishing.Directories() {
		directories = append(directories, relying.Directory(path))
	}
	if len(directories) == 0 {
		return nil
	}
	e.publisher = relying.New(relying.Config{
		Directories: directories,
		Documents:   relying.Documents{Issuer: p.Options.Keys.Issuer()},
		Ring:        p.Keyring,
		Metrics:     relying.NewMetrics(p.Registry.MustRegister),
		Loops:       p.Loops,
	})
	p.Run = e.publisher.Run
	// The check never fails: nothing in the cluster depends on what is published.
	p.Check = func() (string, error) { return e.publisher.Status(), nil }
	return nil
}

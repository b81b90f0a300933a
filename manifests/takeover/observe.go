// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"errors"
	"fmt"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/nodefile"
	"sa-controller-manager/manifests/staticpod"
)

// observed is what a command finds. Nothing is written to it afterwards. Files that do not exist are nil.
type observed struct {
	manager, managerBackup []byte
	// own is the command in our manifest, or in its backup if the manifest is gone or damaged; current is
	// nil then.
	own, current staticpod.Command
	recordFile   []byte
	record       component.Record
	files        map[string]component.Files // by component
	// copied is the admission configuration that a takeover has made for kube-apiserver.
	copied []byte
}

func (c *Config) observe() (*observed, error) {
	var failed []error
	read := func(file string) []byte {
		data, err := nodefile.Read(file)
		failed = append(failed, err) // it names the path
		return data
	}
	o := &observed{
		manager: read(c.manifest(manager)), managerBackup: read(c.backup(manager)), recordFile: read(c.RecordFile()),
		copied: read(c.onNode(component.AdmissionConfigFile)), files: map[string]component.Files{},
	}
	o.current = staticpod.CommandIn(o.manager)
	if o.own = o.current; o.own == nil {
		o.own = staticpod.CommandIn(o.managerBackup)
	}
	var err error
	if o.record, err = component.ParseRecord(o.recordFile); err != nil {
		return nil, fmt.Errorf("%s: %w; without it put the manifests back by hand (docs/takeover.md), and remove it", c.RecordFile(), err)
	}
	for _, name := range []string{component.ControllerManager, component.APIServer} {
		f := component.Files{Name: name, Manifest: read(c.manifest(name)), Backup: read(c.backup(name)), Patch: read(c.patch(name))}
		if taken, ok := o.record.Components[name]; ok {
			f.Taken = &taken
		}
		err := errors.Join(failed...)
		// A handback of kube-apiserver alone works without the manifest of kube-controller-manager.
		if err == nil && f.Manifest == nil && (name == component.APIServer || c.Pod != nil || c.includes(name)) {
			err = c.damaged(name, fmt.Errorf("there is no %s; is this a control-plane node of kubeadm?", c.manifest(name)))
		}
		if err != nil {
			return nil, err
		}
		o.files[name] = f
	}
	return o, nil
}

// damaged says where a manifest that is gone or not understood may be whole.
func (c *Config) damaged(name string, err error) error {
	if data, _ := nodefile.Read(c.backup(name)); data != nil {
		return fmt.Errorf("%w; correct it by hand: %s has it from before the last takeover", err, c.backup(name))
	}
	return err
}

// apiServer has the files of kube-apiserver.
func (o *observed) apiServer() component.Files { return o.files[component.APIServer] }

// registers is how our process registers its webhook now, "" if that is not known.
func (o *observed) registers() registration.Mode {
	return registration.Mode(o.current.Last(RegistrationFlag))
}

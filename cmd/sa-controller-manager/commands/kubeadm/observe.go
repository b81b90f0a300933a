// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"fmt"
	"os"

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
	o := &observed{files: map[string]component.Files{}}
	var err error
	for file, data := range map[string]*[]byte{
		c.manifest(manager): &o.manager, c.backup(manager): &o.managerBackup, c.recordFile(): &o.recordFile,
		c.onNode(component.AdmissionConfigFile): &o.copied,
	} {
		if *data, err = nodefile.Read(file); err != nil {
			return nil, err // it names the path
		}
	}
	o.current = staticpod.CommandIn(o.manager)
	if o.own = o.current; o.own == nil {
		o.own = staticpod.CommandIn(o.managerBackup)
	}
	if o.record, err = component.ParseRecord(o.recordFile); err != nil {
		return nil, fmt.Errorf("%s: %w; without it put the manifests back by hand (docs/takeover.md), and remove it", c.recordFile(), err)
	}
	for _, name := range []string{component.ControllerManager, component.APIServer} {
		if o.files[name], err = c.componentFiles(name, o.record); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func (c *Config) componentFiles(name string, record component.Record) (f component.Files, err error) {
	f.Name = name
	if f.Backup, err = nodefile.Read(c.backup(name)); err != nil {
		return f, err
	}
	if f.Patch, err = nodefile.Read(c.patch(name)); err != nil {
		return f, err
	}
	if taken, ok := record.Components[name]; ok {
		f.Taken = &taken
	}
	// A handback of kube-apiserver alone works without the manifest of kube-controller-manager.
	needed := name == component.APIServer || c.Pod != nil || c.includes(name)
	if f.Manifest, err = os.ReadFile(c.manifest(name)); err == nil || !needed && os.IsNotExist(err) {
		return f, nil
	}
	if f.Backup != nil {
		return f, fmt.Errorf("read the manifest of %s: %w; %s has it from before the last takeover", name, err, c.backup(name))
	}
	return f, fmt.Errorf("read the manifest of %s: %w; is this a control-plane node of kubeadm?", name, err)
}

// damaged says where a manifest that is not understood may be whole.
func (c *Config) damaged(name string, err error) error {
	if data, _ := nodefile.Read(c.backup(name)); data != nil {
		return fmt.Errorf("%w; correct it by hand; %s has it from before the last takeover", err, c.backup(name))
	}
	return err
}

// apiServer has the files of kube-apiserver.
func (o *observed) apiServer() component.Files { return o.files[component.APIServer] }

// registers is how our process registers its webhook now, "" if that is not known.
func (o *observed) registers() registration.Mode {
	return registration.Mode(o.current.Last(registrationFlag))
}

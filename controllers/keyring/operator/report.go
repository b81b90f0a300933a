// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/signing"
)

// Report describes a key ring.
type Report struct {
	File       string      `json:"file"`
	ReadOnly   bool        `json:"readOnly"`
	Generation int64       `json:"generation"`
	Previous   string      `json:"previous,omitempty"`
	Keys       []KeyReport `json:"keys"`
	// IfLeaked is the command for the case that the file has leaked, "" if it has no private key.
	IfLeaked string `json:"ifLeaked,omitempty"`
	// Findings has what is wrong.
	Findings []check.Finding `json:"findings"`
}

// InFile is where a private half is that no other process has.
const InFile = "file"

// KeyReport is one key of the ring.
type KeyReport struct {
	ring.Key

	// Where is the process that has the private half, InFile, or "" if the ring has only the public one.
	Where string `json:"where,omitempty"`
	// Accepted reports whether kube-apiserver accepts the key, if it was asked: "yes", "no" or
	// "unknown".
	Accepted string `json:"accepted,omitempty"`
	// Secrets is the number of token Secrets with the key ID, if the cluster was asked.
	Secrets *int `json:"secrets,omitempty"`
}

// Report reads the ring, and asks the cluster if there is one. A ring that this host has used and that cannot be read is
// a finding. IfLeaked is left to the caller.
func (o *Operator) Report(ctx context.Context) (Report, error) {
	state, unreadable := o.File.Read()
	if unreadable != nil && o.Cluster == nil {
		return Report{}, unreadable
	}
	report := Report{
		File: o.File.Path(), ReadOnly: o.File.Writable() != nil, Generation: state.Generation, Previous: state.Previous,
		Keys: []KeyReport{}, Findings: looseModes(o.File),
	}
	for _, key := range state.Keys {
		line := KeyReport{Key: key}
		if !key.PublicOnly {
			line.Where = cmp.Or(key.Signer, InFile)
		}
		report.Keys = append(report.Keys, line)
	}
	if o.Cluster == nil {
		return report, nil
	}
	return report, report.ask(ctx, o, state, unreadable)
}

var notAsked = check.Fact{
	Code: "key-not-asked", Message: "it is not known whether kube-apiserver accepts key {key}",
	Cost: "nothing, if it does", Remedy: "repair what the error says, then run this again",
}

// ask adds what the cluster says.
func (r *Report) ask(ctx context.Context, o *Operator, state ring.State, unreadable error) error {
	cluster := o.Cluster
	rings, err := hosts.Refresh(ctx, cluster.Client, false)
	if err != nil {
		return errors.Join(unreadable, err)
	}
	stands := hosts.Stand(hosts.File{Host: o.Host, State: state, Err: unreadable}, rings)
	if _, used := stands.Fallen(); unreadable != nil && !used {
		return unreadable
	}
	r.Findings = append(r.Findings, stands.Findings(o.Clock.Now())...)
	if err := cluster.Find(ctx, rings.APIServers()); err != nil {
		r.Findings = append(r.Findings, Unasked(err))
	}
	revoked := ring.Union(rings.Removed, state.Revoked)
	r.Findings = append(r.Findings, cluster.Accepting(ctx, revoked, false)...)
	uses, err := cluster.Uses(ctx, state.Ring())
	if err != nil {
		return err
	}
	r.Findings = append(r.Findings, heldFindings(uses, revoked)...)
	for i := range r.Keys {
		key := &r.Keys[i]
		key.Secrets = new(uses[key.ID])
		if key.Role == signing.Retired || revoked.Has(key.PublicKey) {
			continue // no remedy may give a key that has leaked back to a kube-apiserver
		}
		key.Accepted = "yes"
		if err := cluster.Accepts(ctx, key.Key.Key); err != nil {
			key.Accepted = "unknown"
			finding := notAsked.Found("{key}", key.ID).Because(err.Error())
			if keyprobe.IsRefusal(err) {
				key.Accepted, finding = "no", keyprobe.Refusal("kube-apiserver", key.ID, err.Error())
			}
			// Another ring than the newest may be of another cluster, or have keys that were pruned.
			if stands.Has(key.ID) && !key.Arrives(o.Clock.Now()) {
				r.Findings = append(r.Findings, finding)
			}
		}
	}
	return nil
}

var (
	fileReadable = check.Fact{
		Code: "key-file-readable", Message: "{path}, with private keys, has mode {mode} and others may read it", Remedy: "chmod 600 {path}",
	}
	directoryWritable = check.Fact{
		Code: "key-directory-writable", Message: "{path}, with the key ring, has mode {mode} and others may replace the ring",
		Remedy: "chmod go-w {path}",
	}
)

// looseModes finds a file with private keys that other users may read, or replace. The mode of a file in a mounted
// Secret says nothing: access to the volume is decided elsewhere.
func looseModes(file *ring.File) []check.Finding {
	findings := []check.Finding{}
	loose := func(fact check.Fact, path string, bits os.FileMode) {
		info, err := os.Stat(path)
		if err == nil && file.Writable() == nil && info.Mode().Perm()&bits != 0 && info.Mode()&os.ModeSticky == 0 {
			findings = append(findings, fact.Found("{path}", path, "{mode}", fmt.Sprintf("%#o", info.Mode().Perm())))
		}
	}
	loose(fileReadable, file.Path(), 0o077)
	loose(directoryWritable, filepath.Dir(file.Path()), 0o022)
	return findings
}

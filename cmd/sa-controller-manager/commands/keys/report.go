// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"context"
	"fmt"
	"os"
	"time"

	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/keyrotation"
	"sa-controller-manager/controllers/tokenreissue"
	"sa-controller-manager/internal/printers"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/published"
	"sa-controller-manager/signing/ringfile"
	"sa-controller-manager/signing/rotation"
)

// Report describes a key ring, for people and programs.
type Report struct {
	printers.Head
	File       string             `json:"file"`
	ReadOnly   bool               `json:"readOnly"`
	Generation int64              `json:"generation"`
	Phase      string             `json:"phase"`
	Rotation   *rotation.Rotation `json:"rotation,omitempty"`
	Keys       []KeyReport        `json:"keys"`
	// OtherKeys are the keys of token Secrets that the ring does not have, if the cluster was asked.
	OtherKeys []OtherKey `json:"otherKeys,omitempty"`
	// Published is what relying parties see, if it is known where, and Manual are the places that are
	// published by hand.
	Published []published.Seen  `json:"published,omitempty"`
	Manual    []rotation.Manual `json:"publishedManually,omitempty"`
	// NextStep says what may be done next, and when.
	NextStep string `json:"nextStep"`
	// Findings has what is wrong.
	Findings []printers.Finding `json:"findings"`
	// Pruned is the outcome of a prune.
	Pruned []keyrotation.Pruned `json:"pruned,omitempty"`
}

// KeyReport is one key of the ring.
type KeyReport struct {
	rotation.Key

	// Accepted reports whether kube-apiserver accepts the key, if it was asked: "yes", "no" or
	// "unknown".
	Accepted string `json:"accepted,omitempty"`
	// Secrets is the number of token Secrets with the key ID, if the cluster was asked.
	Secrets *int `json:"secrets,omitempty"`
	// Holders are those Secrets of a retired key, at most a thousand.
	Holders []Holder `json:"holders,omitempty"`
	// PrunableAt is the earliest time at which a retired key may be pruned.
	PrunableAt time.Time `json:"prunableAt,omitzero"`
}

// Holder is a token Secret whose key is retired or unknown.
type Holder struct {
	Secret string `json:"secret"` // namespace/name
	// Progress says what happens next, or why nothing does. It is empty if the token has no key ID.
	tokenreissue.Progress
}

// UnknownKey is the progress of a token Secret whose key the ring does not have. It is never
// re-issued. Its token is valid if kube-apiserver has the key in a --service-account-key-file of its
// own, and otherwise dead.
var UnknownKey = tokenreissue.Progress{State: tokenreissue.Blocked, Reason: "unknown-key"}

// OtherKey is a key of token Secrets that the ring does not have.
type OtherKey struct {
	ID      string `json:"id"` // as the tokens say, "" for those that name none
	Secrets int    `json:"secrets"`
	// Holders are those Secrets, a thousand at most.
	Holders []Holder `json:"holders"`
}

// newReport reads the ring, and asks the cluster if there is one.
func newReport(ctx context.Context, o *keyrotation.Operator) (*Report, error) {
	state, err := o.File.Read()
	if err != nil {
		return nil, err
	}
	report := &Report{
		Head: printers.Of("KeyRingReport"),
		File: o.File.Path(), ReadOnly: o.File.Writable() != nil, Generation: state.Generation,
		Phase: phaseWord(state.Phase()), Rotation: state.Rotation, Manual: state.Manual, Findings: looseMode(o.File),
	}
	if o.Gate != nil {
		report.Published = o.Gate.Look(ctx, state)
	}
	for _, key := range state.Keys {
		line := KeyReport{Key: key}
		if key.Role == signing.Retired {
			line.PrunableAt = o.Policy.PrunableAt(key)
		}
		report.Keys = append(report.Keys, line)
	}
	if o.Cluster != nil {
		if err := report.ask(ctx, o.Cluster, state); err != nil {
			return nil, err
		}
	}
	report.NextStep = nextStep(o, state)
	return report, nil
}

func phaseWord(phase rotation.Phase) string {
	if phase == rotation.Idle {
		return "never rotated"
	}
	return string(phase)
}

// ask adds what the cluster says.
func (r *Report) ask(ctx context.Context, cluster *keyrotation.Cluster, state rotation.State) error {
	if err := cluster.Find(ctx); err != nil {
		r.Findings = append(r.Findings, printers.Finding{Code: "apiserver-not-asked", Message: err.Error(), Remedy: "name each of them with --apiserver"})
	}
	ring := state.Ring()
	uses, err := cluster.Uses(ctx, ring)
	if err != nil {
		return err
	}
	reissues, err := cluster.Reissues(ctx, uses, ring)
	if err != nil {
		return err
	}
	for _, id := range uses.Others(ring) {
		other := OtherKey{ID: id, Secrets: uses.Count(id)}
		for _, name := range uses.Names(id) {
			other.Holders = append(other.Holders, Holder{name, UnknownKey})
		}
		r.OtherKeys = append(r.OtherKeys, other)
	}
	for i := range r.Keys {
		key := &r.Keys[i]
		key.Secrets = new(uses.Count(key.ID))
		if key.Role == signing.Retired {
			for _, name := range uses.Names(key.ID) {
				key.Holders = append(key.Holders, Holder{name, reissues[name]})
			}
			continue
		}
		err := cluster.Accepts(ctx, key.Key)
		key.Accepted = acceptedWord(err)
		if err != nil {
			r.Findings = append(r.Findings, printers.Finding{Code: "key-not-accepted", Message: err.Error(), Objects: []string{key.ID}})
		}
	}
	return nil
}

func acceptedWord(err error) string {
	switch {
	case err == nil:
		return "yes"
	case keyprobe.IsRefusal(err):
		return "no"
	}
	return "unknown"
}

// looseMode finds a file with private keys that other users may read. The mode of a file in a mounted
// Secret says nothing: access to the volume is decided elsewhere.
func looseMode(file *ringfile.File) []printers.Finding {
	path := file.Path()
	info, err := os.Stat(path)
	if file.Writable() != nil || err != nil || info.Mode().Perm()&0o077 == 0 {
		return []printers.Finding{}
	}
	return []printers.Finding{{
		Code:    "key-file-readable",
		Message: fmt.Sprintf("%s, with private keys, has mode %#o and others may read it", path, info.Mode().Perm()),
		Remedy:  "chmod 600 " + path,
	}}
}

func nextStep(o *keyrotation.Operator, state rotation.State) string {
	if o.File.Writable() != nil {
		return "the ring is read-only here; rotate the one that it is a copy of"
	}
	if !state.PausedAt.IsZero() {
		return fmt.Sprintf("rotation by policy is paused since %s: keys rotate resume, or take the steps yourself", timeWord(state.PausedAt))
	}
	switch state.Phase() {
	case rotation.Published:
		if wait := state.Rotation.ActivateNotBefore; o.Clock.Now().Before(wait) {
			return fmt.Sprintf("the next key may sign from %s on: keys rotate activate", wait.Format(time.RFC3339))
		}
		return "the next key may sign: keys rotate activate"
	case rotation.Activated:
		return "see that new tokens work and that every process follows, then: keys rotate complete (or back: keys rollback)"
	case rotation.Idle, rotation.Completed, rotation.RolledBack:
	}
	retired := state.Retired()
	for _, key := range retired {
		if !o.Clock.Now().Before(o.Policy.PrunableAt(key)) {
			return "retired keys that nothing needs may go: keys prune"
		}
	}
	if len(retired) > 0 {
		first := o.Policy.PrunableAt(retired[len(retired)-1])
		return fmt.Sprintf("nothing before %s, when the first retired key may be pruned", first.Format(time.RFC3339))
	}
	return "nothing; keys rotate start begins a rotation"
}

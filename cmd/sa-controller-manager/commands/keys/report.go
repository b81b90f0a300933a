// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/keyring/consistency"
	"sa-controller-manager/controllers/keyring/operator"
	"sa-controller-manager/controllers/keyring/reissue"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/printers"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
)

// Report describes a key ring, for people and programs.
type Report struct {
	printers.Head
	File       string      `json:"file"`
	ReadOnly   bool        `json:"readOnly"`
	Generation int64       `json:"generation"`
	Previous   string      `json:"previous,omitempty"`
	Keys       []KeyReport `json:"keys"`
	// OtherKeys are the keys of token Secrets that the ring does not have, if the cluster was asked.
	OtherKeys []KeyReport `json:"otherKeys,omitempty"`
	// NextStep says what may be done next, and when.
	NextStep string `json:"nextStep"`
	// IfLeaked is the command for the case that the file has leaked, "" if it has no private key.
	IfLeaked string `json:"ifLeaked,omitempty"`
	// Findings has what is wrong.
	Findings []check.Finding `json:"findings"`
	// Pruned is the outcome of a prune.
	Pruned []operator.Pruned `json:"pruned,omitempty"`
	// DryRun means that nothing was changed, and that the keys are those that would be.
	DryRun bool `json:"dryRun,omitempty"`
}

// KeyReport is one key of the ring or, with the role Unknown, of token Secrets alone. That one has the
// ID that the tokens say, "" for those that name none.
type KeyReport struct {
	ring.Key

	// Where is the process that has the private half, "file", or "" if the ring has only the public one.
	Where string `json:"where,omitempty"`
	// Accepted reports whether kube-apiserver accepts the key, if it was asked: "yes", "no" or
	// "unknown".
	Accepted string `json:"accepted,omitempty"`
	// Secrets is the number of token Secrets with the key ID, if the cluster was asked.
	Secrets *int `json:"secrets,omitempty"`
	// Holders are those Secrets of a retired or unknown key, at most a thousand.
	Holders []Holder `json:"holders,omitempty"`
	// PrunableAt is the earliest time at which a retired key may be pruned.
	PrunableAt time.Time `json:"prunableAt,omitzero"`
}

// Holder is a token Secret whose key is retired or unknown.
type Holder struct {
	Secret string `json:"secret"` // namespace/name
	// Progress says what happens next, or why nothing does. It is empty if the token has no key ID.
	reissue.Progress
}

// UnknownKey is the progress of a token Secret whose key the ring does not have. It is never
// re-issued. Its token is valid if kube-apiserver has the key in a --service-account-key-file of its
// own, and otherwise dead.
var UnknownKey = reissue.Progress{State: reissue.Blocked, Reason: "unknown-key"}

// newReport reads the ring, and asks the cluster if there is one. flags lead a command to that cluster.
func newReport(ctx context.Context, o *operator.Operator, flags string) (*Report, error) {
	state, err := o.File.Read()
	if err != nil && o.Cluster != nil {
		return lostReport(ctx, o, err)
	}
	if err != nil {
		return nil, err
	}
	report := &Report{
		Head: printers.Of("KeyRingReport"),
		File: o.File.Path(), ReadOnly: o.File.Writable() != nil, Generation: state.Generation, Previous: state.Previous,
		Findings: looseMode(o.File),
	}
	for _, key := range state.Keys {
		line := KeyReport{Key: key}
		if !key.PublicOnly {
			line.Where = cmp.Or(key.Signer, "file")
		}
		if line.Where == "file" {
			revoke := "sa-controller-manager keys revoke --service-account-key-ring=" + report.File + flags + " --yes"
			report.IfLeaked = cmp.Or(report.IfLeaked, revoke) + " " + key.ID
		}
		report.Keys = append(report.Keys, line)
	}
	report.NextStep = "keys rotate, which checks, with --kubeconfig, that nothing breaks"
	if o.Cluster != nil {
		if err := report.ask(ctx, o, state); err != nil {
			return nil, err
		}
	}
	if _, ok := state.Next(); !ok {
		report.NextStep = "make a next key: keys next"
	}
	if report.ReadOnly {
		report.NextStep = "the ring is read-only here; rotate the one that it is a copy of"
	}
	return report, nil
}

// lostReport is about a ring that this host has used and whose file cannot be read. If it has used none, the error is
// that of the file.
func lostReport(ctx context.Context, o *operator.Operator, unreadable error) (*Report, error) {
	rings, err := consistency.Refresh(ctx, o.Cluster.Client, false)
	if err != nil {
		return nil, fmt.Errorf("%w; and %w", unreadable, err)
	}
	fact, fallen := consistency.Stand(consistency.File{Host: o.Host, Err: unreadable}, rings).Fallen()
	if !fallen {
		return nil, unreadable
	}
	return &Report{
		Head: printers.Of("KeyRingReport"), File: o.File.Path(), Keys: []KeyReport{}, NextStep: fact.Remedy,
		Findings: []check.Finding{fact.Finding},
	}, nil
}

// ask adds what the cluster says.
func (r *Report) ask(ctx context.Context, o *operator.Operator, state ring.State) error {
	cluster := o.Cluster
	rings, err := consistency.Refresh(ctx, cluster.Client, false)
	if err != nil {
		return err
	}
	now := o.Clock.Now()
	stands := consistency.Stand(consistency.File{Host: o.Host, State: state}, rings)
	r.Findings = append(r.Findings, stands.Findings(now)...)
	r.NextStep = nextStep(stands, rings, state, o.Policy.CacheAge, now)
	if err := cluster.Find(ctx, rings.APIServers()); err != nil {
		r.Findings = append(r.Findings, check.Finding{Code: check.APIServerNotAsked, Message: err.Error()})
	}
	for _, fact := range cluster.Accepting(ctx, ring.Union(rings.Removed, state.Revoked), false) {
		r.Findings = append(r.Findings, fact.Finding)
	}
	known := state.Ring()
	uses, err := cluster.Uses(ctx, known)
	if err != nil {
		return err
	}
	reissues, err := cluster.Reissues(ctx, uses, known)
	if err != nil {
		return err
	}
	for _, id := range uses.Others(known) {
		other := KeyReport{Key: ring.Key{Key: signing.PublicKey{ID: id}.As(Unknown)}, Secrets: new(uses.Count(id))}
		for _, name := range uses.Names(id) {
			other.Holders = append(other.Holders, Holder{name, UnknownKey})
		}
		r.OtherKeys = append(r.OtherKeys, other)
	}
	for i := range r.Keys {
		key := &r.Keys[i]
		key.Secrets = new(uses.Count(key.ID))
		if key.Role == signing.Retired {
			if since := rings.Followed[key.ID]; !since.IsZero() {
				key.PrunableAt = since.Add(o.Policy.TokenLifetime + ring.ClockSkew)
			}
			for _, name := range uses.Names(key.ID) {
				key.Holders = append(key.Holders, Holder{name, reissues[name]})
			}
			continue
		}
		key.Accepted = "yes"
		if err := cluster.Accepts(ctx, key.Key); err != nil {
			key.Accepted = "unknown"
			if keyprobe.IsRefusal(err) {
				key.Accepted = "no"
			}
			if key.Role == signing.Active || o.Clock.Since(key.PublishedAt) > settled {
				r.Findings = append(r.Findings, check.Finding{Code: "key-not-accepted", Message: err.Error(), Objects: []string{key.ID}})
			}
		}
	}
	return nil
}

// nextStep says whether the ring can be rotated, and otherwise why not.
func nextStep(stands *consistency.Standing, rings consistency.Published, state ring.State, cacheAge time.Duration, now time.Time) string {
	err := cmp.Or(stands.Refuses(check.Changes|check.Uses), rings.Cached(state, nil, cacheAge, now))
	// A command has just changed the ring: its own host has no problem with it.
	if stands.Ahead() {
		if err = stands.Refuses(check.Changes|check.Uses, stands.Host()); err == nil {
			return fmt.Sprintf("keys rotate, once each host has published the next key for %s", cacheAge)
		}
	}
	if err != nil {
		return "keys rotate, not yet: " + err.Error()
	}
	return "keys rotate"
}

// looseMode finds a file with private keys that other users may read. The mode of a file in a mounted
// Secret says nothing: access to the volume is decided elsewhere.
func looseMode(file *ring.File) []check.Finding {
	path := file.Path()
	info, err := os.Stat(path)
	if file.Writable() != nil || err != nil || info.Mode().Perm()&0o077 == 0 {
		return []check.Finding{}
	}
	return []check.Finding{{
		Code:    "key-file-readable",
		Message: fmt.Sprintf("%s, with private keys, has mode %#o and others may read it", path, info.Mode().Perm()),
		Remedy:  "chmod 600 " + path,
	}}
}

// settled is how long a next key may be unknown to a kube-apiserver before that is a finding.
const settled = 24 * time.Hour

// longestID is the longest ID of an unknown key that is shown in full. Our IDs have 43 characters.
const longestID = 64

// Print writes the report as "table", "json" or "yaml".
func (r *Report) Print(w io.Writer, output string) error {
	return printers.Document(w, output, r, r.table)
}

// table has a line for each key, and sentences below.
func (r *Report) table() string {
	var b strings.Builder
	table := printers.Table(&b)
	fmt.Fprintln(table, "KEY ID\tALGORITHM\tROLE\tWHERE\tSINCE\tPRUNABLE\tACCEPTED\tSECRETS")
	for _, key := range r.Keys {
		secrets := "-"
		if key.Secrets != nil {
			secrets = strconv.Itoa(*key.Secrets)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", key.ID, key.Algorithm, key.Role, cmp.Or(key.Where, "-"),
			timeWord(key.since()), prunable(key.PrunableAt), cmp.Or(key.Accepted, "-"), secrets)
	}
	table.Flush()
	unchanged, pruned := "", "Pruned:     "
	if r.DryRun {
		unchanged, pruned = " after a dry run: nothing was changed", "Would prune: "
	}
	fmt.Fprintf(&b, "\nKey ring:   %s, generation %d%s\nNext step:  %s\n", r.File, r.Generation, unchanged, r.NextStep)
	if r.IfLeaked != "" {
		fmt.Fprintf(&b, "If leaked:  %s\n", r.IfLeaked)
	}
	for _, key := range r.Pruned {
		if key.Pruned {
			fmt.Fprintln(&b, pruned+key.KeyID)
		} else {
			fmt.Fprintf(&b, "Stays:      %s: %s\n", key.KeyID, key.Reason)
		}
	}
	for _, key := range r.Keys {
		if len(key.Holders) > 0 {
			fmt.Fprintf(&b, "Secrets of %s key %s: %s\n", key.Role, key.ID, shorten(key.Holders, *key.Secrets))
		}
	}
	for i, other := range r.OtherKeys {
		if i == printers.Shown {
			fmt.Fprintf(&b, "And Secrets of %d more keys that are not in this ring (-o json has them)\n", len(r.OtherKeys)-i)
			break
		}
		fmt.Fprintf(&b, "Secrets of %s, which is not in this ring: %s\n", unknownKey(other.ID), shorten(other.Holders, *other.Secrets))
	}
	check.Print(&b, r.Findings, 0)
	return b.String()
}

// since returns when the key took its role.
func (k KeyReport) since() time.Time {
	switch k.Role {
	case signing.Active:
		return k.ActivatedAt
	case signing.Retired:
		return k.RetiredAt
	case signing.Next, signing.VerifyOnly:
	}
	return k.PublishedAt
}

// timeWord formats a time. One in the future was taken by a wrong clock, and says nothing.
func timeWord(at time.Time) string {
	switch {
	case at.IsZero():
		return "-"
	case at.After(time.Now().Add(time.Hour)):
		return "unknown: a clock was ahead"
	}
	return at.UTC().Format(time.RFC3339)
}

// prunable formats a time that is mostly in the future.
func prunable(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}

func (h Holder) String() string {
	if h.State == reissue.None {
		return h.Secret
	}
	return fmt.Sprintf("%s (%s)", h.Secret, h.Progress)
}

// unknownKey quotes an ID that is not printable or too long: the author of the token chose it.
func unknownKey(id string) string {
	switch {
	case id == "":
		return "a key that their tokens do not name"
	case len(id) > longestID || strconv.Quote(id) != `"`+id+`"`:
		return fmt.Sprintf("key %.*q", longestID, id)
	}
	return "key " + id
}

func shorten(holders []Holder, all int) string {
	names := make([]string, len(holders))
	for i, holder := range holders {
		names[i] = holder.String()
	}
	return printers.Shorten(names, all)
}

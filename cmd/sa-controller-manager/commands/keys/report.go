// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/keyring/consistency"
	"sa-controller-manager/controllers/keyring/kcm"
	"sa-controller-manager/controllers/keyring/operator"
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
	// IfLeaked is the command for the case that the file has leaked, "" if it has no private key.
	IfLeaked string `json:"ifLeaked,omitempty"`
	// Findings has what is wrong.
	Findings []check.Finding `json:"findings"`
	// Pruned is the outcome of a prune.
	Pruned []operator.Pruned `json:"pruned,omitempty"`
	// DryRun means that nothing was changed, and that the keys are those that would be.
	DryRun bool `json:"dryRun,omitempty"`
}

// KeyReport is one key of the ring.
type KeyReport struct {
	ring.Key

	// Where is the process that has the private half, "file", or "" if the ring has only the public one.
	Where string `json:"where,omitempty"`
	// Accepted reports whether kube-apiserver accepts the key, if it was asked: "yes", "no" or
	// "unknown".
	Accepted string `json:"accepted,omitempty"`
	// Secrets is the number of token Secrets with the key ID, if the cluster was asked.
	Secrets *int `json:"secrets,omitempty"`
}

// newReport reads the ring, and asks the cluster if there is one. flags lead a command to that cluster. A ring that this
// host has used and that cannot be read is a finding.
func newReport(ctx context.Context, o *operator.Operator, flags string) (*Report, error) {
	state, unreadable := o.File.Read()
	if unreadable != nil && o.Cluster == nil {
		return nil, unreadable
	}
	report := &Report{
		Head: printers.Of("KeyRingReport"), File: o.File.Path(), ReadOnly: o.File.Writable() != nil,
		Generation: state.Generation, Previous: state.Previous, Keys: []KeyReport{}, Findings: looseModes(o.File),
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
	var err error
	if o.Cluster != nil {
		err = report.ask(ctx, o, state, unreadable)
	}
	report.Findings = check.WithFlags(report.Findings, flags)
	return report, err
}

var notAsked = check.Fact{
	Code: "key-not-asked", Message: "it is not known whether kube-apiserver accepts key {key}",
	Cost: "nothing, if it does", Remedy: "repair what the error says, then run this again",
}

// ask adds what the cluster says.
func (r *Report) ask(ctx context.Context, o *operator.Operator, state ring.State, unreadable error) error {
	cluster := o.Cluster
	rings, err := consistency.Refresh(ctx, cluster.Client, false)
	if err != nil {
		return errors.Join(unreadable, err)
	}
	stands := consistency.Stand(consistency.File{Host: o.Host, State: state, Err: unreadable}, rings)
	if _, used := stands.Fallen(); unreadable != nil && !used {
		return unreadable
	}
	r.Findings = append(r.Findings, stands.Findings(o.Clock.Now())...)
	if err := cluster.Find(ctx, rings.APIServers()); err != nil {
		r.Findings = append(r.Findings, operator.Unasked(err))
	}
	revoked := ring.Union(rings.Removed, state.Revoked)
	r.Findings = append(r.Findings, cluster.Accepting(ctx, revoked, false)...)
	uses, err := cluster.Uses(ctx, state.Ring())
	if err != nil {
		return err
	}
	r.Findings = append(r.Findings, kcm.Findings(uses, revoked)...)
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
			if stands.Has(key.ID) && !arrives(key.Key, o.Clock.Now()) {
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

// settled is how long a next key may be unknown to a kube-apiserver before that is a finding.
const settled = 24 * time.Hour

func arrives(key ring.Key, now time.Time) bool {
	return key.Role != signing.Active && key.Role != signing.Retired && now.Sub(key.PublishedAt) <= settled
}

// Print writes the report as "table", "json" or "yaml".
func (r *Report) Print(w io.Writer, output string) error {
	return printers.Document(w, output, r, r.table)
}

// table has a line for each key, and sentences below.
func (r *Report) table() string {
	var b strings.Builder
	table := printers.Table(&b)
	fmt.Fprintln(table, "KEY-ID\tALGORITHM\tROLE\tWHERE\tSINCE\tACCEPTED\tSECRETS")
	for _, key := range r.Keys {
		secrets := "-"
		if key.Secrets != nil {
			secrets = strconv.Itoa(*key.Secrets)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", key.ID, key.Algorithm, key.Role, cmp.Or(key.Where, "-"),
			timeWord(cmp.Or(key.RetiredAt, key.ActivatedAt, key.PublishedAt)), cmp.Or(key.Accepted, "-"), secrets)
	}
	table.Flush()
	unchanged, pruned := "", "Pruned:     "
	if r.DryRun {
		unchanged, pruned = " after a dry run: nothing was changed", "Would prune: "
	}
	fmt.Fprintf(&b, "\nKey ring:   %s, generation %d%s\n", r.File, r.Generation, unchanged)
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
	check.Print(&b, r.Findings, 0)
	return b.String()
}

// timeWord formats a time. One in the future was taken by a wrong clock, and says nothing.
func timeWord(at time.Time) string {
	if at.After(time.Now().Add(time.Hour)) {
		return "unknown: a clock was ahead"
	}
	return at.UTC().Format(time.RFC3339)
}

// newListCommand shows a key ring.
func newListCommand(client cli.ClientFunc) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the keys of a ring, and what is wrong with it",
		Long: `Show the keys of a ring, where each is, and the command for the case that the file leaks. With
--kubeconfig, --context or --master the cluster is asked which keys it accepts, which known
hosts lack one, and how many token Secrets bear each. If a key is revoked, a Secret in
kube-system is made and deleted, to see which key kube-controller-manager signs with. Nothing
else is changed.`,
	}
	o := newCommandOptions(cmd, client)
	return o.runs(cmd, nil, func(ctx context.Context, operator *operator.Operator) error {
		report, err := o.print(cmd, operator)
		if err != nil {
			return err
		}
		if operator.Cluster == nil {
			cmd.PrintErrln("kube-apiserver was not asked about these keys: give --kubeconfig or --context.")
		} else if err = kcm.SignsRevoked(ctx, operator); apierrors.IsForbidden(err) {
			err = noted(cmd, []string{err.Error()}, nil) // a reader may make no Secret
		}
		if err == nil && len(report.Findings) > 0 {
			return cli.ErrFindings
		}
		return err
	})
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"sa-controller-manager/controllers/keyrotation"
	"sa-controller-manager/controllers/tokenreissue"
	"sa-controller-manager/internal/printers"
	"sa-controller-manager/signing"
)

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
	fmt.Fprintln(table, "KEY ID\tALGORITHM\tROLE\tSINCE\tPRUNABLE\tACCEPTED\tSECRETS")
	for _, key := range r.Keys {
		secrets := "-"
		if key.Secrets != nil {
			secrets = strconv.Itoa(*key.Secrets)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", key.ID, key.Algorithm, key.role(),
			timeWord(key.since()), timeWord(key.PrunableAt), cmp.Or(key.Accepted, "-"), secrets)
	}
	table.Flush()
	fmt.Fprintf(&b, "\nKey ring:   %s, generation %d\nRotation:   %s\nNext step:  %s\n", r.File, r.Generation, r.rotation(), r.NextStep)
	for _, seen := range r.Published {
		fmt.Fprintf(&b, "Published:  %s\n", printers.Printable(seen.String()))
	}
	for _, place := range r.Manual {
		fmt.Fprintf(&b, "By hand:    %s, confirmed: %s\n", place.Name, printers.OrNone(strings.Join(place.Confirmed, ", ")))
	}
	for _, pruned := range r.Pruned {
		fmt.Fprintln(&b, prunedWord(pruned))
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
		fmt.Fprintf(&b, "Secrets of %s, which is not in this ring: %s\n", other, shorten(other.Holders, other.Secrets))
	}
	for i, finding := range r.Findings {
		fmt.Fprintf(&b, "\n%d. %s\n", i+1, finding.Message)
		if finding.Remedy != "" {
			fmt.Fprintf(&b, "   remedy: %s\n", finding.Remedy)
		}
	}
	return b.String()
}

func (k KeyReport) role() string {
	if k.PublicOnly {
		return string(k.Role) + " (public half)"
	}
	return string(k.Role)
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

func (r *Report) rotation() string {
	if r.Rotation == nil {
		return r.Phase
	}
	text := fmt.Sprintf("%s, from %s to %s, started %s", r.Phase, r.Rotation.From, r.Rotation.To, timeWord(r.Rotation.StartedAt))
	if !r.Rotation.ActivatedAt.IsZero() {
		text += ", activated " + timeWord(r.Rotation.ActivatedAt)
	}
	if !r.Rotation.EndedAt.IsZero() {
		text += ", ended " + timeWord(r.Rotation.EndedAt)
	}
	return text
}

func prunedWord(p keyrotation.Pruned) string {
	switch {
	case p.Pruned && p.DryRun:
		return "Would prune: " + p.KeyID
	case p.Pruned:
		return strings.TrimSpace("Pruned:     " + p.KeyID + "\n" + p.Destroy)
	}
	return fmt.Sprintf("Stays:      %s: %s", p.KeyID, p.Reason)
}

func timeWord(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}

func (h Holder) String() string {
	if h.State == tokenreissue.None {
		return h.Secret
	}
	return fmt.Sprintf("%s (%s)", h.Secret, h.Progress)
}

// String quotes an ID that is not printable or too long: the author of the token chose it.
func (k OtherKey) String() string {
	switch {
	case k.ID == "":
		return "a key that their tokens do not name"
	case len(k.ID) > longestID || strconv.Quote(k.ID) != `"`+k.ID+`"`:
		return fmt.Sprintf("key %.*q", longestID, k.ID)
	}
	return "key " + k.ID
}

func shorten(holders []Holder, all int) string {
	names := make([]string, len(holders))
	for i, holder := range holders {
		names[i] = holder.String()
	}
	return printers.Shorten(names, all)
}

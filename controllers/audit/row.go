// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

// Row is what is said of one token Secret. Its JSON form is that of the command's output.
type Row struct {
	Namespace string      `json:"namespace"`
	Name      string      `json:"name"`
	Account   string      `json:"account"`
	Created   metav1.Time `json:"created"`

	KeyID string       `json:"keyID,omitempty"`
	State signing.Role `json:"keyState"`

	// LastUsed and InvalidSince are days.
	LastUsed     string `json:"lastUsed,omitempty"`
	InvalidSince string `json:"invalidSince,omitempty"`
	Referenced   bool   `json:"referenced"`

	// Pods are the first few that use the Secret, PodCount is how many do.
	Pods     []string `json:"pods,omitempty"`
	PodCount int      `json:"podCount"`

	// Reach is how far the account reaches, "" if that was not asked; ReachBy is what gives it
	// that.
	Reach   Reach  `json:"reach,omitempty"`
	ReachBy string `json:"reachBy,omitempty"`

	Findings []Finding `json:"findings,omitempty"`
	// Problem says more about an orphan or a bad token.
	Problem string `json:"problem,omitempty"`

	// idle is since when the token was not used; zero if that is not known.
	idle time.Time
}

// account is what is kept of a ServiceAccount.
type account struct {
	uid     types.UID
	secrets sets.Set[string] // that it references
	// reach is how far it reaches, empty if that was not asked.
	reach reach
	asked bool
}

// Rules are what rows are evaluated by.
type Rules struct {
	Now time.Time
	// UnusedFor is the time without use after which a token is unused.
	UnusedFor time.Duration
	// TrackedSince is since when kube-apiserver notes the use of tokens. Untracked: it does not.
	TrackedSince time.Time
	Untracked    bool
}

// row makes a row of a token. account is the one of its name, nil if there is none.
func (r Rules) row(of *token, account *account, pods users) Row {
	secret := of.view
	row := Row{
		Namespace: secret.Namespace, Name: secret.Name, Account: of.account, Created: secret.CreationTimestamp,
		KeyID: of.keyID, State: of.state, Problem: of.problem,
		LastUsed: secret.Labels[tokensecrets.LastUsedLabel], InvalidSince: secret.Labels[tokensecrets.InvalidSinceLabel],
		Pods: pods.first, PodCount: pods.count, idle: r.idleSince(secret),
	}
	orphan := orphanReason(of, account)
	if orphan == "" {
		row.Referenced = account.secrets.Has(secret.Name)
		row.Reach, row.ReachBy = account.reach.reach, account.reach.by
	} else {
		// Its token opens nothing, however far another account of the name reaches.
		row.Problem = orphan
	}
	for _, finding := range []struct {
		name Finding
		is   bool
	}{
		{ClusterAdmin, row.Reach == Everything},
		{SecretsReader, row.Reach == AllSecrets},
		{BadToken, of.problem != ""},
		{UnknownKey, row.State == tokens.Unknown},
		{RetiredKey, row.State == signing.Retired},
		{Orphan, orphan != ""},
		{Invalidated, secret.InvalidSince()},
		{Unused, row.State != StateEmpty && r.unused(row.idle, r.UnusedFor)},
		{Unmounted, row.PodCount == 0},
		{Unreferenced, !row.Referenced},
	} {
		if finding.is {
			row.Findings = append(row.Findings, finding.name)
		}
	}
	return row
}

// orphanReason says why kube-apiserver refuses the token of a Secret for its account, "" if it does
// not. An account without a UID is any of that name.
func orphanReason(secret *token, account *account) string {
	switch {
	case secret.account == "":
		return "it names no account that could exist"
	case account == nil:
		return "the account does not exist"
	case secret.uid != "" && secret.uid != account.uid && secret.view.AccountUID != account.uid:
		return "the account was deleted, and another one has its name"
	case secret.view.Token != nil && secret.view.Token.AccountUID != "" && secret.view.Token.AccountUID != account.uid:
		return "the token is of another account that had the name"
	}
	return ""
}

// day is the format of the labels.
const day = "2006-01-02"

// idleSince is the end of the last day of use. Without use it is when the Secret was made, or the
// end of the day on which kube-apiserver began to note it, if that is later.
func (r Rules) idleSince(secret *tokensecrets.TokenSecret) time.Time {
	if r.Untracked {
		return time.Time{}
	}
	if label, used := secret.Labels[tokensecrets.LastUsedLabel]; used {
		last, err := time.Parse(day, label)
		if err != nil {
			return time.Time{}
		}
		return last.AddDate(0, 0, 1)
	}
	if begun := r.TrackedSince; begun.After(secret.CreationTimestamp.Time) {
		return begun
	}
	return secret.CreationTimestamp.Time
}

func (r Rules) unused(idle time.Time, period time.Duration) bool {
	return !idle.IsZero() && r.Now.Sub(idle) >= period
}

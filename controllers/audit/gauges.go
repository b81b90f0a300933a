// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/series"
)

// interval is the time between two counts.
const interval = 5 * time.Minute

// NewGauges returns what counts, until ctx ends, the findings that the caches of the token controller answer. It sends no
// request; signatures, reach, use and Pods, which the command looks at too, would take some.
func NewGauges(i *informers.Informers, register series.Register) (run func(ctx context.Context) error) {
	secrets, _ := i.TokenSecrets()
	accounts, _ := i.Accounts()
	found := series.GaugeVec(register, "sacm_token_findings",
		"Token Secrets with a finding of the audit: bad-token, orphan, invalid or unreferenced.", "finding")
	// It takes time in proportion to the Secrets and to the references to them. It goes by the account that annotations name:
	// the claims of a token are in no cache, and where they name another one it is a bad token.
	count := func(context.Context) {
		known, counts := map[cache.ObjectName]*account{}, map[Finding]float64{}
		for _, secret := range secrets.All() {
			name := secret.Account()
			if _, asked := known[name]; !asked {
				known[name] = nil
				if one, err := accounts.ServiceAccounts(name.Namespace).Get(name.Name); err == nil {
					known[name] = &account{uid: one.UID, secrets: tokensecrets.ReferencedBy(one)}
				}
			}
			of := &token{view: secret, account: secret.AccountName, uid: secret.AccountUID, problem: secret.Finding}
			for _, finding := range (Rules{}).row(of, known[name], users{}).Findings {
				counts[finding]++
			}
		}
		for _, finding := range []Finding{BadToken, Orphan, Invalidated, Unreferenced} {
			found.WithLabelValues(string(finding)).Set(counts[finding])
		}
	}
	return func(ctx context.Context) error {
		defer found.Reset() // another process may lead now
		wait.UntilWithContext(ctx, count, interval)
		return nil
	}
}

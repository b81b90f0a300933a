// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package extras

import (
	"errors"
	"testing"
	"time"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/tokens/policy"
)

func TestSignerPolicy(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	for name, tc := range map[string]struct {
		reason        string
		flag, longest time.Duration
	}{
		"Lowered": {"kube-apiserver asks for the previous maximum, and for a year for Pods, until it is restarted", 24 * time.Hour, year},
		"Default": {"", options.New().ExternalSigner.MaxTokenExpiration, year},
		"Longer":  {"the longer lifetime was announced", 2 * year, 2 * year},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options.New()
			o.Keys.Issuers, o.ExternalSigner.MaxTokenExpiration = []string{signertest.Issuer}, tc.flag
			allowed, err := signerPolicy(o)
			testutil.Must(t, err)
			testutil.CheckError(t, tc.reason, "", allowed.Check(signertest.PayloadFor(tc.longest)))
			err = allowed.Check(signertest.PayloadFor(tc.longest + time.Second))
			if refusal, ok := errors.AsType[*policy.RefusalError](err); !ok || refusal.Reason() != policy.ReasonLifetime {
				t.Errorf("a token that lives a second longer: %v, want reason %q", err, policy.ReasonLifetime)
			}
		})
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package extras

import (
	"errors"
	"slices"
	"testing"
	"time"

	"sa-controller-manager/cmd/sa-controller-manager/app"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/signertest"
	"sa-controller-manager/signing/testkeys"
	"sa-controller-manager/tokens/policy"
)

func TestKeptForSigner(t *testing.T) {
	t.Parallel()
	o := newOptions()
	o.Keys.PrivateKeyFile = testutil.WriteFile(t, "sa.key", slices.Concat(testkeys.P256(), testkeys.RSA2048Other()))
	o.Keys.VerifyKeyFiles = []string{testutil.WriteFile(t, "old.key", testkeys.P384()), testutil.WriteFile(t, "older.key", testkeys.P521())}
	e := &extras{}
	testutil.Must(t, start(t, o, app.Extras{Parts: e.parts}))
	if e.Kept != nil {
		t.Error("without a socket a key file is asked for")
	}
	for name, tc := range map[string]struct {
		key  []byte
		want bool
	}{
		"of the first file":        {testkeys.P384(), true},
		"of the second file":       {testkeys.P521(), true},
		"of the private key file":  {testkeys.P256(), false}, // which will hold another one
		"further down in it":       {testkeys.RSA2048Other(), true},
		"of a file that was there": {testkeys.RSA2048(), false},
	} {
		if got := e.keptForSigner(testkeys.Parse(tc.key).ID()); got != tc.want {
			t.Errorf("a key %s is kept: %t, want %t", name, got, tc.want)
		}
	}
}

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
			if err := allowed.Check(signertest.PayloadFor(tc.longest)); err != nil {
				t.Errorf("%s: a token of %v is refused: %v", tc.reason, tc.longest, err)
			}
			err = allowed.Check(signertest.PayloadFor(tc.longest + time.Second))
			if refusal, ok := errors.AsType[*policy.RefusalError](err); !ok || refusal.Reason() != policy.ReasonLifetime {
				t.Errorf("a token that lives a second longer: %v, want reason %q", err, policy.ReasonLifetime)
			}
		})
	}
}

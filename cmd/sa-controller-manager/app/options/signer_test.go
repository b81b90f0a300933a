// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"sa-controller-manager/internal/testutil"
)

func TestSignerUsers(t *testing.T) {
	t.Parallel()
	own := uint32(os.Getuid())
	testutil.Check(t, "by default", slices.Compact([]uint32{0, own}), parse(t).ExternalSigner.UIDs())
	testutil.Check(t, "result", []uint32{7, 4294967294}, parse(t, "--external-signer-allowed-uids=7,4294967294").ExternalSigner.UIDs())
}

// TestSignerFlags: a process that only signs has the flags of what it runs, and wants a ring.
func TestSignerFlags(t *testing.T) {
	t.Parallel()
	const ring, issuer = "--service-account-key-ring=ring.json", "--service-account-issuer=https://a"
	for name, tc := range map[string]struct {
		args []string
		want []string // problems
		err  string   // of a flag that there is not
	}{
		"Enough": {args: []string{ring, issuer}},
		"All": {args: []string{
			ring, issuer, "--external-signer-socket=/x", "--service-account-key-file=sa.pub", "--publish-keys=file:///srv", "--kubeconfig=k", "-v=2",
		}},
		"Nothing": {want: []string{
			`--service-account-key-ring "" must be the path of a key ring, which "sa-controller-manager keys init" makes`,
			`--external-signer-socket "/run/sa-controller-manager/signer.sock" needs --service-account-issuer, with the value that ` +
				"kube-apiserver has: tokens of other issuers are not signed",
		}},
		"NoSocket": {
			args: []string{ring, issuer, "--external-signer-socket="}, want: []string{`--external-signer-socket "" must be the path of a socket`},
		},
		"KeyFile":     {args: []string{"--service-account-private-key-file=sa.key"}, err: "unknown flag: --service-account-private-key-file"},
		"RootCA":      {args: []string{"--root-ca-file=ca.crt"}, err: "unknown flag: --root-ca-file"},
		"Controllers": {args: []string{"--controllers=*"}, err: "unknown flag: --controllers"},
		"Webhook":     {args: []string{"--webhook-port=1"}, err: "unknown flag: --webhook-port"},
		"Lease":       {args: []string{"--leader-elect=true"}, err: "unknown flag: --leader-elect"},
		"OfKCM":       {args: []string{"--cluster-cidr=10.0.0.0/8"}, err: "unknown flag: --cluster-cidr"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := NewSigner()
			_, err := o.Parse(tc.args)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("%v: %v, want %s", tc.args, err, tc.err)
				}
				return
			}
			testutil.Must(t, err)
			var got []string
			for _, problem := range o.Validate() {
				got = append(got, problem.Error())
			}
			testutil.Check(t, "problems", tc.want, got, cmpopts.EquateEmpty())
		})
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSignerOptions(t *testing.T) {
	t.Parallel()
	const socket = "--external-signer-socket=/run/x.sock"
	good := []string{socket, "--service-account-private-key-file=sa.key", "--service-account-issuer=https://a"}
	cases := map[string]struct {
		reason string
		args   []string
		want   []string // parts of the problems, in order
	}{
		"Off":        {"nothing else counts", []string{"--service-account-issuer="}, nil},
		"Good":       {"all that it needs", good, nil},
		"Directory":  {"a ring of several", []string{socket, "--service-account-key-ring=keys", good[2]}, nil},
		"NoKey":      {"nothing to sign with", good[:1:1], []string{"give --service-account-key-ring or --service-account-private-key-file", "needs --service-account-issuer"}},
		"Relative":   {"depends on where we start", append([]string{"--external-signer-socket=x.sock"}, good[1:]...), []string{"must be an absolute path"}},
		"Abstract":   {"has no mode", append([]string{"--external-signer-socket=@x"}, good[1:]...), []string{"must be an absolute path"}},
		"TooLong":    {"no address", append([]string{"--external-signer-socket=/" + strings.Repeat("x", 103)}, good[1:]...), []string{"at most 103 bytes"}},
		"User":       {"a number of 32 bits", append(good, "--external-signer-allowed-uids=4294967295"), []string{"must be a user ID"}},
		"TooShort":   {"kube-apiserver exits", append(good, "--external-signer-max-token-expiration=599s"), []string{"from 10m"}},
		"LongEnough": {"its least", append(good, "--external-signer-max-token-expiration=10m"), nil},
		"Fraction":   {"kube-apiserver gets whole seconds", append(good, "--external-signer-max-token-expiration=600500ms"), []string{"whole number of seconds"}},
		"NoRefresh":  {"kube-apiserver refuses the keys", append(good, "--external-signer-refresh-hint=0"), []string{"external-signer-refresh-hint"}},
		"NoNumber":   {"pflag takes it", append(good, "--external-signer-qps=nan"), []string{"must be a finite number"}},
		"Endless":    {"pflag takes it", append(good, "--external-signer-qps=inf"), []string{"must be a finite number"}},
		"NoRate":     {"nothing would be signed", append(good, "--external-signer-qps=0"), []string{"external-signer-qps"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			problems := parse(t, tc.args...).Validate()
			if len(problems) != len(tc.want) {
				t.Fatalf("%s: problems %v, want %d", tc.reason, problems, len(tc.want))
			}
			for i, want := range tc.want {
				if !strings.Contains(problems[i].Error(), want) {
					t.Errorf("%s: problem %q, want one with %q", tc.reason, problems[i], want)
				}
			}
		})
	}
}

func TestSignerUsers(t *testing.T) {
	t.Parallel()
	own := uint32(os.Getuid())
	if diff := cmp.Diff(slices.Compact([]uint32{0, own}), parse(t).ExternalSigner.UIDs()); diff != "" {
		t.Errorf("by default (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]uint32{7, 4294967294}, parse(t, "--external-signer-allowed-uids=7,4294967294").ExternalSigner.UIDs()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"net"
	"testing"
)

func TestWebhookBindAddress(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		args   []string
		want   net.IP
	}{
		"Default":      {want: net.IPv4(127, 0, 0, 1)},
		"URL":          {args: []string{"--webhook-registration=url"}, want: net.IPv4(127, 0, 0, 1)},
		"URLElsewhere": {args: []string{"--webhook-registration=url", "--webhook-url-host=10.0.0.1"}, want: net.IPv4(127, 0, 0, 1)},
		"LoopbackURL": {
			reason: "kube-apiserver calls that address", args: []string{"--webhook-registration=static", "--webhook-url-host=::1"},
			want: net.IPv6loopback,
		},
		"Service": {
			reason: "the Service forwards to the address of the Pod", args: []string{"--webhook-registration=service"}, want: net.IPv4zero,
		},
		"Given": {args: []string{"--webhook-registration=service", "--webhook-bind-address=10.0.0.1"}, want: net.IPv4(10, 0, 0, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := parse(t, tc.args...).Webhook.Address(); !got.Equal(tc.want) {
				t.Errorf("%s\nbinds %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

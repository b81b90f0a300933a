// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package external_test

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	externaljwtv1 "k8s.io/externaljwt/apis/v1"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing/signertest"
)

const nobody = 65534

// TestUsers wants the kernel's word on who connects to count, on every method.
func TestUsers(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	cases := map[string]struct {
		reason  string
		allowed []uint32
		uid     int
		want    codes.Code
	}{
		"root":              {"kube-apiserver of kubeadm", []uint32{0}, 0, codes.OK},
		"another user":      {"in the socket's group, and not allowed", []uint32{0}, nobody, codes.PermissionDenied},
		"an allowed user":   {"a kube-apiserver that is not root", []uint32{0, nobody}, nobody, codes.OK},
		"root, not allowed": {"root is nobody special", []uint32{nobody}, 0, codes.PermissionDenied},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := configFor(t, newRing(t))
			config.AllowedUIDs = tc.allowed
			testutil.Must(t, os.Chmod(filepath.Dir(config.Path), 0o711))
			serve(t, config)
			remote, err := signertest.ConnectAs(config.Path, tc.uid)
			testutil.Must(t, err)
			t.Cleanup(func() { _ = remote.Close() })
			client := externaljwtv1.NewExternalJWTSignerClient(remote.Conn())
			_, signErr := client.Sign(t.Context(), &externaljwtv1.SignJWTRequest{Claims: signertest.Payload(0)})
			_, fetchErr := client.FetchKeys(t.Context(), &externaljwtv1.FetchKeysRequest{})
			_, metadataErr := client.Metadata(t.Context(), &externaljwtv1.MetadataRequest{})
			for method, err := range map[string]error{"Sign": signErr, "FetchKeys": fetchErr, "Metadata": metadataErr} {
				testutil.Expect(t, status.Code(err) == tc.want, "%s: %s returned %v, want code %s", tc.reason, method, err, tc.want)
			}
		})
	}
}

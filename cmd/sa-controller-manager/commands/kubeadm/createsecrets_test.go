// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/internal/testutil"
)

// TestCreatesSecrets: the permission to create Secrets comes with the flags that need it.
func TestCreatesSecrets(t *testing.T) {
	t.Parallel()
	const noKeyFile, keyRing = "--service-account-private-key-file=", "--service-account-key-ring=/etc/kubernetes/pki/sa-keys/ring.json"
	cases := map[string]struct {
		tokenSecrets options.TokenSecretsMode
		args         []string
		want         bool
	}{
		"Manual":            {tokenSecrets: options.TokenSecretsManual},
		"Auto":              {tokenSecrets: options.TokenSecretsAuto, want: true},
		"AutoByFurtherFlag": {tokenSecrets: options.TokenSecretsManual, args: []string{"--token-secrets=auto"}, want: true},
		"Reissue":           {tokenSecrets: options.TokenSecretsManual, args: []string{noKeyFile, keyRing}, want: true},
		"KeyRingGivenUp":    {tokenSecrets: options.TokenSecretsManual, args: []string{keyRing, "--service-account-key-ring="}},
		"OtherVersion":      {tokenSecrets: options.TokenSecretsManual, args: []string{"--of-another-version=1"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newControlPlane(t, "v1.36")
			flags := newPodFlags()
			flags.binary, flags.tokenSecrets, flags.extraArgs = "/opt/b", string(tc.tokenSecrets), tc.args
			p.config.Render = flags.render
			o, err := p.config.observe()
			testutil.Must(t, err)
			testutil.Must(t, p.config.render(o))
			var pod corev1.Pod
			testutil.Must(t, yaml.UnmarshalStrict(o.rendered, &pod))
			if got := slices.Contains(pod.Spec.InitContainers[0].Args, "--create-secrets"); got != tc.want || o.createSecrets != tc.want {
				t.Errorf("our Pod grants itself to create Secrets: %t, the takeover: %t; want %t", got, o.createSecrets, tc.want)
			}
		})
	}
}

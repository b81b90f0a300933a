// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"time"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/manifests"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/remote"
	"sa-controller-manager/signing/ring"
)

const (
	issuerFlag        = "service-account-issuer"
	maxExpirationFlag = "service-account-max-token-expiration"

	ownSocketFlag        = "external-signer-socket"
	ownMaxExpirationFlag = "external-signer-max-token-expiration"

	clientCAFlag = "client-ca-file"
)

// signs reports whether our process is to sign kube-apiserver's tokens, or does so already. It also is to
// where an upgrade without our patches gave kube-apiserver its key files back: they may have missed a rotation.
func (c *Config) signs(o *observed) (bool, error) {
	if c.ExternalSigner || !c.Reset && component.OwnFlag(o.manager, ownSocketFlag) == manifests.SignerSocket {
		return true, nil
	}
	return o.apiServer().Signs()
}

// ofAPIServer sets the options that follow from kube-apiserver's manifest: the directory of the CA for
// client certificates and, if our process signs its tokens, the settings of the signer.
func (c *Config) ofAPIServer(o *observed, pod *manifests.StaticPodOptions) error {
	signs, err := c.signs(o)
	if err != nil {
		return err
	}
	m, err := o.apiServer().Parse()
	if err != nil {
		return err
	}
	ca, err := m.Flag(clientCAFlag)
	if err != nil {
		return fmt.Errorf("the manifest of %s: %w", component.APIServer, err)
	}
	if file := staticpod.Last(ca); path.Base(file) == "ca.crt" {
		host, err := m.HostPath(file)
		if err != nil {
			return fmt.Errorf("--%s of %s: %w", clientCAFlag, component.APIServer, err)
		}
		pod.CertDir = path.Dir(host)
	}
	pod.StaticRegistration, pod.Signer = o.fromFiles(), signs
	pod.Carried = append(pod.Carried, component.Assign(registrationFlag, string(cmp.Or(o.mode, registration.URL))))
	if !signs {
		return nil
	}
	args, files, err := c.signerFlags(m, o.apiServer().SigningKeys(o.own()).Verify)
	if err != nil {
		return fmt.Errorf("the manifest of %s: %w", component.APIServer, err)
	}
	pod.Args, pod.Files = args, append(pod.Files, files...)
	return nil
}

// signerFlags returns the settings that our process shares with kube-apiserver when it signs its tokens,
// and the key files among them: previous ones if an earlier takeover has removed them from the manifest.
// It refuses a key file with a key that our process cannot verify with: kube-apiserver would refuse its
// tokens. Our process reports everything else that is wrong with a file when it starts, and then
// kube-apiserver is not changed.
func (c *Config) signerFlags(m *staticpod.Manifest, previous []string) (args, files []string, err error) {
	flags, err := m.Flags(issuerFlag, component.VerifyKeyFlag, maxExpirationFlag)
	if err != nil {
		return nil, nil, err
	}
	if len(flags[issuerFlag]) == 0 {
		return nil, nil, fmt.Errorf("it has no --%s, and so issues no tokens", issuerFlag)
	}
	for _, file := range flags[component.VerifyKeyFlag] {
		host, err := m.HostPath(file.Text)
		if err != nil {
			return nil, nil, fmt.Errorf("--%s: %w", component.VerifyKeyFlag, err)
		}
		_, err = cli.ReadFile(component.VerifyKeyFlag, c.onNode(host), signing.ParseAllPublicKeys)
		if err != nil && !errors.As(err, new(*fs.PathError)) {
			return nil, nil, err
		}
		files = append(files, host)
	}
	if len(files) == 0 {
		files = previous
	}
	args = []string{component.Assign(ownSocketFlag, manifests.SignerSocket)}
	for _, issuer := range flags[issuerFlag] {
		args = append(args, component.Assign(issuerFlag, issuer.Text))
	}
	for _, file := range files {
		args = append(args, component.Assign(component.VerifyKeyFlag, file))
	}
	text := staticpod.Last(flags[maxExpirationFlag])
	limit, err := time.ParseDuration(cmp.Or(text, "0"))
	if err != nil {
		return nil, nil, fmt.Errorf("--%s=%s is not a duration", maxExpirationFlag, text)
	}
	// Our default limit is a year, to which kube-apiserver extends the tokens of Pods. With a longer
	// one of its own it does not start if ours is shorter.
	if limit > 365*24*time.Hour {
		args = append(args, component.Assign(ownMaxExpirationFlag, limit.String()))
	}
	return args, files, nil
}

// signerSockets returns the sockets of the processes that have keys of our ring, as our manifest names
// them. It refuses a ring with a key whose socket is not named, with which our process would end at
// every start; any other problem with the ring is reported by our process.
func (c *Config) signerSockets(manifest []byte) ([]string, error) {
	var sockets remote.Sockets
	if file := component.OwnFlag(manifest, remote.SocketsFlag); file != "" {
		var err error
		if sockets, err = cli.ReadFile(remote.SocketsFlag, c.onNode(file), remote.ParseSockets); err != nil {
			return nil, err
		}
	}
	if file := component.OwnFlag(manifest, component.KeyRingFlag); file != "" {
		if state, err := ring.At(c.onNode(file)).Read(); err == nil {
			if err := sockets.Check(state.Ring()); err != nil {
				return nil, err
			}
		}
	}
	for name, socket := range sockets {
		for _, shared := range []string{manifests.SignerDirectory, "/etc/kubernetes/pki"} {
			if staticpod.Below(path.Clean(socket), shared) {
				return nil, fmt.Errorf("--%s: %s: kube-apiserver has %s too, and must not reach %s, where any token is signed: "+
					"move the socket to a directory of its own", remote.SocketsFlag, name, shared, socket)
			}
		}
		if err := manifests.Mountable(socket); err != nil {
			return nil, fmt.Errorf("--%s: %s: %w", remote.SocketsFlag, name, err)
		}
	}
	return slices.Sorted(maps.Values(sockets)), nil
}

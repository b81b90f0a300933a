// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/manifests"
	"sa-controller-manager/signing"
)

const (
	endpointFlag      = "service-account-signing-endpoint"
	signingKeyFlag    = "service-account-signing-key-file"
	verifyKeyFlag     = "service-account-key-file"
	issuerFlag        = "service-account-issuer"
	maxExpirationFlag = "service-account-max-token-expiration"

	ownSocketFlag        = "external-signer-socket"
	ownMaxExpirationFlag = "external-signer-max-token-expiration"

	clientCAFlag = "client-ca-file"

	// signerMinor is the first Kubernetes 1.x in which the external signer is on by
	// default (k8s.io/kubernetes pkg/features, ExternalServiceAccountTokenSigner).
	signerMinor = 34
)

// socketMount is the directory that kube-apiserver and our process share. It is mounted as a whole,
// because a recreated socket is another file.
func socketMount() staticpod.Mount {
	return staticpod.Mount{Name: manager, Path: manifests.SignerDirectory}
}

// signingKeys are the key files that kube-apiserver gets back where it has no record of them.
type signingKeys struct {
	private string
	verify  []string
}

// signingAPIServerComponent is kube-apiserver without its plugin and without keys.
func signingAPIServerComponent(keys signingKeys) component {
	plain := apiServerComponent()
	return component{
		name:   apiServer,
		lines:  append(plain.lines, assign(endpointFlag, manifests.SignerSocket)),
		mounts: []staticpod.Mount{socketMount()},
		out: func(m *staticpod.Manifest) (staticpod.Edit, error) {
			e, err := plain.out(m)
			if err != nil {
				return staticpod.Edit{}, err
			}
			return signerOut(m, e)
		},
		rest: func(m *staticpod.Manifest, e staticpod.Edit) (staticpod.Edit, error) { return signerIn(m, e, keys) },
	}
}

// signerOut replaces the key flags by the socket. It removes them, because kube-apiserver counts an
// empty one as given (k8s.io/kubernetes pkg/controlplane/apiserver/options/validation.go).
func signerOut(m *staticpod.Manifest, e staticpod.Edit) (staticpod.Edit, error) {
	if err := knowsSigner(m.Image()); err != nil {
		return staticpod.Edit{}, err
	}
	flags, err := m.Flags(endpointFlag, signingKeyFlag, verifyKeyFlag)
	if err != nil {
		return staticpod.Edit{}, err
	}
	endpoint := flags[endpointFlag]
	if last := staticpod.Last(endpoint); last != "" && last != manifests.SignerSocket {
		return staticpod.Edit{}, fmt.Errorf("--%s=%s is in use already by another signer", endpointFlag, last)
	}
	for _, key := range slices.Concat(flags[signingKeyFlag], flags[verifyKeyFlag]) {
		e.Remove = append(e.Remove, key.Item)
	}
	slices.Sort(e.Remove)
	if len(endpoint) == 0 {
		e.Append = append(e.Append, assign(endpointFlag, manifests.SignerSocket))
	}
	return m.Remount(e, true, socketMount())
}

// signerIn replaces the socket by the key flags.
func signerIn(m *staticpod.Manifest, e staticpod.Edit, keys signingKeys) (staticpod.Edit, error) {
	endpoint, err := m.Flag(endpointFlag)
	if err != nil {
		return staticpod.Edit{}, err
	}
	for _, value := range endpoint {
		if !slices.Contains(e.Remove, value.Item) {
			e.Remove = append(e.Remove, value.Item)
		}
	}
	if len(endpoint) > 0 {
		if keys.private == "" || len(keys.verify) == 0 {
			return staticpod.Edit{}, fmt.Errorf("neither the backup nor our manifest says which --%s and --%s it had; add them by hand, and remove --%s",
				signingKeyFlag, verifyKeyFlag, endpointFlag)
		}
		for _, file := range keys.verify {
			putBack(m, &e, assign(verifyKeyFlag, file))
		}
		putBack(m, &e, assign(signingKeyFlag, keys.private))
	}
	return m.Remount(e, false, socketMount())
}

// putBack adds a flag where kubeadm has it, in alphabetical order: the patch of a later takeover names
// it by its place in what kubeadm writes.
func putBack(m *staticpod.Manifest, e *staticpod.Edit, flag string) {
	for i, given := range m.Command() {
		if i > 0 && given > flag && !slices.Contains(e.Remove, i) {
			if e.Insert == nil {
				e.Insert = map[int][]string{}
			}
			e.Insert[i] = append(e.Insert[i], flag)
			return
		}
	}
	e.Append = append(e.Append, flag)
}

// signs reports whether our process is to sign kube-apiserver's tokens, or does so already.
func (c *Config) signs(o *observed) (bool, error) {
	if c.ExternalSigner {
		return true, nil
	}
	return o.signsAlready()
}

// signsAlready reports whether our process signs kube-apiserver's tokens now.
func (o *observed) signsAlready() (bool, error) {
	m, err := o.parsed(apiServerComponent())
	if err != nil {
		return false, nil //nolint:nilerr // the callers that need the manifest report it
	}
	endpoint, err := m.Flag(endpointFlag)
	return staticpod.Last(endpoint) == manifests.SignerSocket, err
}

// components returns both components, as this call changes them.
func (c *Config) components(o *observed) ([]component, error) {
	signs, err := c.signs(o)
	return []component{controllerManagerComponent(), apiServerAs(signs, c.static(o), o.previousKeys())}, err
}

// apiServerAs returns what becomes of kube-apiserver with the external signer and with static
// registration.
func apiServerAs(signs, static bool, keys signingKeys) component {
	one := apiServerComponent()
	if signs {
		one = signingAPIServerComponent(keys)
	}
	if static {
		one = registeredStatically(one)
	}
	return one
}

// previousKeys returns the key files that the backup names, or else our manifest.
func (o *observed) previousKeys() signingKeys {
	if backup, err := staticpod.Parse(o.backups[apiServer], apiServer); err == nil {
		flags, err := backup.Flags(signingKeyFlag, verifyKeyFlag)
		if private := staticpod.Last(flags[signingKeyFlag]); err == nil && private != "" {
			return signingKeys{private: private, verify: texts(flags[verifyKeyFlag])}
		}
	}
	return signingKeys{private: ownFlag(o.own(), keyFlag), verify: ownFlags(o.own(), verifyKeyFlag)}
}

// ofAPIServer sets the options that follow from kube-apiserver's manifest: the directory of the CA for
// client certificates and, if our process signs its tokens, the settings of the signer.
func (c *Config) ofAPIServer(o *observed, pod *manifests.StaticPodOptions) error {
	signs, err := c.signs(o)
	if err != nil {
		return err
	}
	m, err := o.operatorManifest(apiServerComponent())
	if err != nil {
		return nil //nolint:nilerr // planTakeover reports it
	}
	ca, err := m.Flag(clientCAFlag)
	if err != nil {
		return fmt.Errorf("the manifest of %s: %w", apiServer, err)
	}
	if file := staticpod.Last(ca); path.Base(file) == "ca.crt" {
		host, err := m.HostPath(file)
		if err != nil {
			return fmt.Errorf("--%s of %s: %w", clientCAFlag, apiServer, err)
		}
		pod.CertDir = path.Dir(host)
	}
	pod.StaticRegistration, pod.Signer = c.static(o), signs
	if !signs {
		return nil
	}
	if m, err = o.parsed(apiServerComponent()); err != nil {
		return err
	}
	args, files, err := c.signerFlags(m, o.previousKeys().verify)
	if err != nil {
		return fmt.Errorf("the manifest of %s: %w", apiServer, err)
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
	flags, err := m.Flags(issuerFlag, verifyKeyFlag, maxExpirationFlag)
	if err != nil {
		return nil, nil, err
	}
	if len(flags[issuerFlag]) == 0 {
		return nil, nil, fmt.Errorf("it has no --%s, and so issues no tokens", issuerFlag)
	}
	for _, file := range flags[verifyKeyFlag] {
		host, err := m.HostPath(file.Text)
		if err != nil {
			return nil, nil, fmt.Errorf("--%s: %w", verifyKeyFlag, err)
		}
		_, err = cli.ReadFile(verifyKeyFlag, c.onNode(host), signing.ParseAllPublicKeys)
		if err != nil && !errors.As(err, new(*fs.PathError)) {
			return nil, nil, err
		}
		files = append(files, host)
	}
	if len(files) == 0 {
		files = previous
	}
	args = []string{assign(ownSocketFlag, manifests.SignerSocket)}
	for _, issuer := range flags[issuerFlag] {
		args = append(args, assign(issuerFlag, issuer.Text))
	}
	for _, file := range files {
		args = append(args, assign(verifyKeyFlag, file))
	}
	text := staticpod.Last(flags[maxExpirationFlag])
	limit, err := time.ParseDuration(cmp.Or(text, "0"))
	if err != nil {
		return nil, nil, fmt.Errorf("--%s=%s is not a duration", maxExpirationFlag, text)
	}
	// Our default limit is a year, to which kube-apiserver extends the tokens of Pods. With a longer
	// one of its own it does not start if ours is shorter.
	if limit > 365*24*time.Hour {
		args = append(args, assign(ownMaxExpirationFlag, limit.String()))
	}
	return args, files, nil
}

func texts(values []staticpod.Value) []string {
	var all []string
	for _, value := range values {
		all = append(all, value.Text)
	}
	return all
}

// socketServed refuses to point kube-apiserver at a socket that our process does not serve.
func (c *Config) socketServed(o *observed) cli.Look {
	return func(context.Context) error {
		signs, err := c.signs(o)
		if err == nil && signs && ownFlag(c.ownManifest(o), ownSocketFlag) != manifests.SignerSocket {
			err = fmt.Errorf("%s has no --%s=%s; add --rewrite", c.manifest(manager), ownSocketFlag, manifests.SignerSocket)
		}
		return cli.Permanent(err)
	}
}

// socketUnused refuses to stop our process while kube-apiserver needs it to start.
func (c *Config) socketUnused(context.Context) error {
	now, err := c.observe()
	signs := false
	if err == nil {
		signs, err = now.signsAlready()
	}
	if signs {
		err = errors.New("sa-controller-manager signs the tokens of kube-apiserver, which would not start without it; first run: kubeadm handback --steps=" + StepAPIServer)
	}
	return cli.Permanent(err)
}

// knowsSigner refuses versions of kube-apiserver without the flag. of is an image or a version.
func knowsSigner(of string) error {
	return notOlder(of, signerMinor, "with an external signer that is on by default")
}

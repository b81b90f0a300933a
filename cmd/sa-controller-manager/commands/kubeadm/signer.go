// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
	"sa-controller-manager/manifests"
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

// socketMount is the directory that kube-apiserver and our process share. It is mounted
// as a whole, because a socket that is made anew is another file.
func socketMount() staticpod.Mount {
	return staticpod.Mount{Name: manager, Path: manifests.SignerDirectory}
}

// Signer is what our process is told when it signs for kube-apiserver: what it has in
// common with it.
type Signer struct {
	// Issuers are kube-apiserver's.
	Issuers []string
	// VerifyKeyFiles are those of kube-apiserver that it may no longer have.
	VerifyKeyFiles []string
	// MaxTokenExpiration is kube-apiserver's if that has one, and otherwise 0.
	MaxTokenExpiration time.Duration
}

// signingKeys is what kube-apiserver gets back if nobody knows any more what it had.
type signingKeys struct {
	private string
	verify  []string
}

// signingAPIServerComponent is kube-apiserver with neither plugin nor key.
func signingAPIServerComponent(keys signingKeys) component {
	plain := apiServerComponent()
	return component{
		name:  apiServer,
		lines: append(plain.lines, assign(endpointFlag, manifests.SignerSocket)),
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

// signerOut takes the keys away and names the socket. The two flags must be gone:
// kube-apiserver counts an empty one as given (k8s.io/kubernetes
// pkg/controlplane/apiserver/options/validation.go).
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
		return staticpod.Edit{}, fmt.Errorf("--%s=%s is in use already, by another signer", endpointFlag, last)
	}
	for _, key := range slices.Concat(flags[signingKeyFlag], flags[verifyKeyFlag]) {
		e.Remove = append(e.Remove, key.Item)
	}
	slices.Sort(e.Remove)
	if len(endpoint) == 0 {
		e.Append = append(e.Append, assign(endpointFlag, manifests.SignerSocket))
	}
	mounted, err := m.Mounted(manager)
	if err != nil {
		return staticpod.Edit{}, err
	}
	if !mounted {
		mount := socketMount()
		e.Mount = &mount
	}
	return e, nil
}

// signerIn gives the keys back in the place of an endpoint.
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
			return staticpod.Edit{}, fmt.Errorf("neither the backup nor our manifest says which --%s and --%s it had; put them in by hand, and take --%s out",
				signingKeyFlag, verifyKeyFlag, endpointFlag)
		}
		for _, file := range keys.verify {
			putBack(m, &e, assign(verifyKeyFlag, file))
		}
		putBack(m, &e, assign(signingKeyFlag, keys.private))
	}
	mounted, err := m.Mounted(manager)
	if mounted {
		mount := socketMount()
		e.Unmount = &mount
	}
	return e, err
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

// signs reports whether kube-apiserver is to have its tokens signed by us, or does already.
func (c *Config) signs(o *observed) (bool, error) {
	if c.ExternalSigner {
		return true, nil
	}
	return o.signed()
}

// signed reports whether it does already.
func (o *observed) signed() (bool, error) {
	m, err := o.parsed(apiServerComponent())
	if err != nil {
		return false, nil //nolint:nilerr // who needs the manifest says what is wrong with it
	}
	endpoint, err := m.Flag(endpointFlag)
	return staticpod.Last(endpoint) == manifests.SignerSocket, err
}

// components are the two, the way that this call is about.
func (c *Config) components(o *observed) ([]component, error) {
	signs, err := c.signs(o)
	if err != nil || !signs {
		return components(), err
	}
	return []component{controllerManagerComponent(), signingAPIServerComponent(o.formerKeys())}, nil
}

// formerKeys are those that the backup names, and otherwise our manifest.
func (o *observed) formerKeys() signingKeys {
	if backup, err := staticpod.Parse(o.backups[apiServer], apiServer); err == nil {
		flags, err := backup.Flags(signingKeyFlag, verifyKeyFlag)
		if private := staticpod.Last(flags[signingKeyFlag]); err == nil && private != "" {
			return signingKeys{private: private, verify: texts(flags[verifyKeyFlag])}
		}
	}
	return signingKeys{private: ownFlag(o.own(), keyFlag), verify: ownFlags(o.own(), verifyKeyFlag)}
}

// ofAPIServer puts into our manifest what kube-apiserver's says: where the CA is whose client
// certificates it accepts, and if it has its tokens signed by us, what that takes.
func (c *Config) ofAPIServer(o *observed, pod *manifests.StaticPodOptions) error {
	signs, err := c.signs(o)
	if err != nil {
		return err
	}
	m, err := o.operators(apiServerComponent())
	if err != nil {
		return nil //nolint:nilerr // planTakeover says what is wrong with it
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
	if !signs {
		return nil
	}
	s, err := c.signer(o)
	if err != nil {
		return err
	}
	pod.Signer, pod.Args = true, s.Args()
	pod.Files = append(pod.Files, s.VerifyKeyFiles...)
	return nil
}

// signer is what our process has to know of kube-apiserver. What kube-apiserver's manifest does not
// say any more, ours does.
func (c *Config) signer(o *observed) (*Signer, error) {
	m, err := o.parsed(apiServerComponent())
	if err != nil {
		return nil, err
	}
	s, err := signerOf(m)
	if err != nil {
		return nil, fmt.Errorf("the manifest of %s: %w", apiServer, err)
	}
	if err := c.losesNone(s.VerifyKeyFiles); err != nil {
		return nil, err
	}
	if len(s.VerifyKeyFiles) == 0 {
		s.VerifyKeyFiles = o.formerKeys().verify
	}
	return s, nil
}

func signerOf(m *staticpod.Manifest) (*Signer, error) {
	flags, err := m.Flags(issuerFlag, verifyKeyFlag, maxExpirationFlag)
	if err != nil {
		return nil, err
	}
	s := &Signer{Issuers: texts(flags[issuerFlag]), VerifyKeyFiles: texts(flags[verifyKeyFlag])}
	if len(s.Issuers) == 0 {
		return nil, fmt.Errorf("it has no --%s, and so issues no tokens that could be signed", issuerFlag)
	}
	for i, file := range s.VerifyKeyFiles {
		if s.VerifyKeyFiles[i], err = m.HostPath(file); err != nil {
			return nil, fmt.Errorf("--%s: %w", verifyKeyFlag, err)
		}
	}
	if text := staticpod.Last(flags[maxExpirationFlag]); text != "" {
		if s.MaxTokenExpiration, err = time.ParseDuration(text); err != nil {
			return nil, fmt.Errorf("--%s=%s is no time span", maxExpirationFlag, text)
		}
	}
	return s, nil
}

// Args are the flags of our process that say all this. Its own limit is a year, which
// kube-apiserver extends tokens of Pods to; a longer one of kube-apiserver's counts,
// because that would not start otherwise.
func (s *Signer) Args() []string {
	args := []string{assign(ownSocketFlag, manifests.SignerSocket)}
	for _, issuer := range s.Issuers {
		args = append(args, assign(issuerFlag, issuer))
	}
	for _, file := range s.VerifyKeyFiles {
		args = append(args, assign(verifyKeyFlag, file))
	}
	if s.MaxTokenExpiration > 365*24*time.Hour {
		args = append(args, assign(ownMaxExpirationFlag, s.MaxTokenExpiration.String()))
	}
	return args
}

func texts(values []staticpod.Value) []string {
	var all []string
	for _, value := range values {
		all = append(all, value.Text)
	}
	return all
}

// socketServed refuses to point kube-apiserver at a socket that nobody serves.
func (c *Config) socketServed(o *observed) cli.Look {
	return func(context.Context) error {
		signs, err := c.signs(o)
		if err == nil && signs && ownFlag(c.ownManifest(o), ownSocketFlag) != manifests.SignerSocket {
			err = fmt.Errorf("%s has no --%s=%s; --rewrite writes it anew", c.manifest(manager), ownSocketFlag, manifests.SignerSocket)
		}
		return cli.Permanent(err)
	}
}

// socketUnused refuses to end a process without which kube-apiserver does not start.
func (c *Config) socketUnused(context.Context) error {
	now, err := c.observe()
	if err != nil {
		return cli.Permanent(err)
	}
	if signs, err := now.signed(); err != nil || !signs {
		return cli.Permanent(err)
	}
	return cli.Permanent(errors.New("kube-apiserver has its tokens signed by sa-controller-manager and would not start without it; first: kubeadm handback --steps=" + StepAPIServer))
}

// knowsSigner refuses a kube-apiserver that takes the flag for an error. of is an image or a version.
func knowsSigner(of string) error {
	return notOlder(of, signerMinor, "with an external signer that is on by default")
}

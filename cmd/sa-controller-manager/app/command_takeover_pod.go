// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"

	"sa-controller-manager/cmd/sa-controller-manager/kubeadm"
	"sa-controller-manager/manifests"
)

// podFlags are about our static pod.
type podFlags struct {
	binary, image string
	tokenSecrets  string
	extraArgs     []string
	rewrite       bool
}

func newPodFlags() podFlags {
	path, err := os.Executable()
	if err != nil {
		path = "/usr/local/bin/" + programName
	}
	return podFlags{binary: path, tokenSecrets: string(TokenSecretsManual)}
}

func (p *podFlags) addTo(fs *pflag.FlagSet) {
	fs.StringVar(&p.binary, "binary", p.binary, "This program's `file` on the host. It is run in the image that kube-controller-manager has. Default: the file that runs now.")
	fs.Lookup("binary").DefValue = "" // of the machine that prints the help
	fs.StringVar(&p.image, "image", p.image, "Run this image, which has the program, instead of --binary.")
	fs.StringVar(&p.tokenSecrets, "token-secrets", p.tokenSecrets, "What our process is started with: \"manual\", as Kubernetes is today, or \"auto\".")
	fs.StringArrayVar(&p.extraArgs, "extra-arg", p.extraArgs, "A further flag for our process, --name=value. May be given more than once.")
	fs.BoolVar(&p.rewrite, "rewrite", p.rewrite, "Write our manifest anew if there is one. The four flags above imply it.")
}

// given tells whether a manifest that is there is to be replaced.
func (p *podFlags) given(fs *pflag.FlagSet) bool {
	return p.rewrite || slices.ContainsFunc([]string{"binary", "image", "token-secrets", "extra-arg"}, fs.Changed)
}

func (p *podFlags) validate() []error {
	var found problems
	found.oneOf("token-secrets", p.tokenSecrets, string(TokenSecretsManual), string(TokenSecretsAuto))
	if p.image == "" && !filepath.IsAbs(p.binary) {
		found.add("binary", p.binary, "must be an absolute path")
	}
	for _, arg := range p.extraArgs {
		if len(arg) < 3 || arg[:2] != "--" {
			found.add("extra-arg", arg, "must be a flag, --name=value")
		}
	}
	return found
}

// render makes our manifest. image is the one that kube-controller-manager runs in.
func (p *podFlags) render(image string, signer *kubeadm.Signer) ([]byte, error) {
	o := manifests.StaticPodOptions{Image: image, HostBinary: p.binary, TokenSecrets: p.tokenSecrets}
	if signer != nil {
		o.Signer, o.Args = true, signer.Args()
	}
	o.Args = append(o.Args, p.extraArgs...)
	if p.image != "" {
		o.Image, o.HostBinary = p.image, ""
	}
	return manifests.StaticPod(o)
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/ownflags"
	"sa-controller-manager/manifests"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/nodefile"
	"sa-controller-manager/manifests/staticpod"
	"sa-controller-manager/manifests/takeover"
)

// Flags of a takeover about our static pod.
const (
	binaryFlag       = "binary"
	imageFlag        = "image"
	tokenSecretsFlag = "token-secrets"
	extraArgFlag     = "extra-arg"
	onlyFlag         = "only"
)

// recordedFlags are those of a takeover that do not follow from the manifests. That our process signs, and
// how its webhook is registered, follows from its own.
var recordedFlags = []string{binaryFlag, imageFlag, tokenSecretsFlag, extraArgFlag, onlyFlag}

// podFlags are the flags of our static pod.
type podFlags struct {
	takeover.Pod

	// self is the running executable.
	self    string
	only    string
	rewrite bool
}

func newPodFlags() podFlags {
	path, _ := os.Executable() // without one, the flag is needed
	return podFlags{self: path, Pod: takeover.Pod{
		Binary: path, Version: takeover.VersionOf, TokenSecrets: string(options.TokenSecretsManual), Flags: ownflags.Flags{},
		MaxInFlight: options.New().Webhook.MaxInFlight,
	}}
}

func (p *podFlags) addTo(fs *pflag.FlagSet) {
	fs.StringVar(&p.Binary, binaryFlag, p.Binary, "This program's `file` on the host. Our Pod runs it in the image of "+
		"kube-controller-manager. Default: the running executable.")
	fs.Lookup(binaryFlag).DefValue = "" // depends on the machine
	fs.StringVar(&p.Image, imageFlag, p.Image, "The `image` that contains this program, to run instead of --binary.")
	fs.StringVar(&p.only, onlyFlag, p.only, "\"signer\": change nothing but who signs kube-apiserver's tokens, with a key ring. Kept "+
		"until another takeover has --only=. Implies --external-signer.")
	fs.StringVar(&p.TokenSecrets, tokenSecretsFlag, p.TokenSecrets,
		"--token-secrets of our process: \"manual\", as in Kubernetes 1.24 and newer, or \"auto\".")
	fs.StringArrayVar(&p.ExtraArgs, extraArgFlag, p.ExtraArgs, "Further flag of our process, --name=value, after the ones "+
		"that our manifest has anyway: --service-account-private-key-file= removes the key file. A file that it names is mounted. "+
		"May be given more than once.")
	fs.BoolVar(&p.rewrite, "rewrite", p.rewrite, "Replace our manifest if it exists. Implied by --binary, --image, --token-secrets, "+
		"--extra-arg, --only, --external-signer and --reset. It keeps what the last takeover was given and this one is not.")
}

// given reports whether an existing manifest is to be replaced.
func (p *podFlags) given(fs *pflag.FlagSet) bool {
	return p.rewrite || slices.ContainsFunc(recordedFlags, fs.Changed)
}

func (p *podFlags) validate() []error {
	var found options.Problems
	found.OneOf(onlyFlag, p.only, "", manifests.SignerCommand)
	found.OneOf(tokenSecretsFlag, p.TokenSecrets, string(options.TokenSecretsManual), string(options.TokenSecretsAuto))
	if p.only != "" && p.TokenSecrets != string(options.TokenSecretsManual) {
		found.Add(tokenSecretsFlag, p.TokenSecrets,
			"must be left out with --"+onlyFlag+": kube-controller-manager goes on with token Secrets")
	}
	if p.Image == "" && !filepath.IsAbs(p.Binary) {
		found.Add(binaryFlag, p.Binary, "must be an absolute path")
	}
	for _, arg := range p.ExtraArgs {
		if name := staticpod.FlagName(arg); len(arg) < 3 || arg[:2] != "--" {
			found.Add(extraArgFlag, arg, "must be a flag, --name=value")
		} else if name == tokenSecretsFlag {
			found.Add(extraArgFlag, arg, "is a flag of this command itself")
		} else if p.only != "" && (ownflags.NotOfSigner(name) || arg == component.Assign(component.KeyRingFlag, "")) {
			found.Add(extraArgFlag, arg, "is not for "+manifests.SignerCommand+"; first run: kubeadm handback, or if nothing else is "+
				"taken over, --reset drops what is kept")
		} else if slices.Contains([]string{takeover.SocketFlag, takeover.StaticDirFlag}, name) {
			found.Add(extraArgFlag, arg, "is what this command decides")
		} else if name == takeover.RegistrationFlag && arg != component.Assign(name, string(registration.None)) {
			found.Add(extraArgFlag, arg, "must be left out, or none, which leaves kube-apiserver its plugin: we register from files")
		} else if _, err := p.Flags.Files(arg); err != nil {
			found.Add(extraArgFlag, arg, err.Error())
		}
	}
	return found
}

// keep gives this takeover the flags of the last one that it does not have itself, and records them all. Of
// --extra-arg each flag of our process counts for itself.
func (f *nodeFlags) keep(fs *pflag.FlagSet) error {
	data, err := nodefile.Read(f.RecordFile())
	if err != nil {
		return err // it names the path
	}
	record, err := component.ParseRecord(data)
	if err == nil && !f.Reset {
		f.Kept = record.Flags
	}
	f.Kept = slices.DeleteFunc(f.Kept, func(flag string) bool { return f.pod.has(fs, flag) })
	for _, flag := range f.Kept {
		name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		if err := fs.Set(name, value); err != nil {
			return fmt.Errorf("%s: %w; --reset goes on without", f.RecordFile(), err)
		}
	}
	for _, name := range recordedFlags {
		if flag := fs.Lookup(name); flag.Changed {
			values := []string{flag.Value.String()}
			if list, ok := flag.Value.(pflag.SliceValue); ok {
				values = list.GetSlice()
			}
			for _, value := range values {
				if value != "" || name != onlyFlag { // which versions without the flag do not know
					f.Given = append(f.Given, component.Assign(name, value))
				}
			}
		}
	}
	return nil // what observes the node reports a damaged record
}

// has reports whether this takeover has a flag, or one that excludes it.
func (p *podFlags) has(fs *pflag.FlagSet, flag string) bool {
	name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
	switch name {
	case binaryFlag, imageFlag:
		return fs.Changed(binaryFlag) || fs.Changed(imageFlag)
	case extraArgFlag:
		return slices.ContainsFunc(p.ExtraArgs, func(arg string) bool { return staticpod.FlagName(arg) == staticpod.FlagName(value) })
	}
	return fs.Changed(name)
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package takeover

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/options/secureport"
	"sa-controller-manager/cmd/sa-controller-manager/app/permissions"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/manifests"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/nodefile"
	"sa-controller-manager/manifests/staticpod"
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
	// self is the running executable.
	self string
	// versionOf returns what a binary prints as its version.
	versionOf     func(ctx context.Context, file string) (string, error)
	binary, image string
	only          string
	tokenSecrets  string
	extraArgs     []string
	rewrite       bool
}

func newPodFlags() podFlags {
	path, _ := os.Executable() // without one, the flag is needed
	return podFlags{self: path, versionOf: versionOf, binary: path, tokenSecrets: string(options.TokenSecretsManual)}
}

func (p *podFlags) addTo(fs *pflag.FlagSet) {
	fs.StringVar(&p.binary, binaryFlag, p.binary, "This program's `file` on the host. Our Pod runs it in the image of "+
		"kube-controller-manager. Default: the running executable.")
	fs.Lookup(binaryFlag).DefValue = "" // depends on the machine
	fs.StringVar(&p.image, imageFlag, p.image, "The `image` that contains this program, to run instead of --binary.")
	fs.StringVar(&p.only, onlyFlag, p.only, "\"signer\": change nothing but who signs kube-apiserver's tokens, with a key ring. Kept "+
		"until another takeover has --only=. Implies --external-signer.")
	fs.StringVar(&p.tokenSecrets, tokenSecretsFlag, p.tokenSecrets,
		"--token-secrets of our process: \"manual\", as in Kubernetes 1.24 and newer, or \"auto\".")
	fs.StringArrayVar(&p.extraArgs, extraArgFlag, p.extraArgs, "Further flag of our process, --name=value, after the ones "+
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
	found.OneOf(tokenSecretsFlag, p.tokenSecrets, string(options.TokenSecretsManual), string(options.TokenSecretsAuto))
	if p.only != "" && p.tokenSecrets != string(options.TokenSecretsManual) {
		found.Add(tokenSecretsFlag, p.tokenSecrets,
			"must be left out with --"+onlyFlag+": kube-controller-manager goes on with token Secrets")
	}
	if p.image == "" && !filepath.IsAbs(p.binary) {
		found.Add(binaryFlag, p.binary, "must be an absolute path")
	}
	for _, arg := range p.extraArgs {
		if len(arg) < 3 || arg[:2] != "--" {
			found.Add(extraArgFlag, arg, "must be a flag, --name=value")
		} else if staticpod.FlagName(arg) == tokenSecretsFlag {
			found.Add(extraArgFlag, arg, "is a flag of this command itself")
		} else if p.only != "" && (notOfSigner(staticpod.FlagName(arg)) || arg == component.Assign(component.KeyRingFlag, "")) {
			found.Add(extraArgFlag, arg, "is not for "+manifests.SignerCommand+"; first run: kubeadm handback, or if nothing else is "+
				"taken over, --reset drops what is kept")
		} else if slices.Contains([]string{ownSocketFlag, staticDirFlag}, staticpod.FlagName(arg)) {
			found.Add(extraArgFlag, arg, "is what this command decides")
		} else if staticpod.FlagName(arg) == registrationFlag && arg != component.Assign(registrationFlag, string(registration.None)) {
			found.Add(extraArgFlag, arg, "must be left out, or none, which leaves kube-apiserver its plugin: we register from files")
		} else if _, err := filesOf(arg); err != nil {
			found.Add(extraArgFlag, arg, err.Error())
		}
	}
	return found
}

// notOfSigner reports whether only the manager has a flag, as far as this version knows it.
func notOfSigner(name string) bool {
	_, manager, err := secureport.Parse(nil)
	_, signer, failed := secureport.Parse([]string{manifests.SignerCommand})
	return err == nil && failed == nil && manager.Lookup(name) != nil && signer.Lookup(name) == nil
}

// filesOf returns the files that a flag of our process names. The placeholder of the value in the help
// text says whether it names any.
func filesOf(arg string) ([]string, error) {
	_, flags, err := secureport.Parse(nil)
	if err != nil {
		return nil, err
	}
	name, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	flag := flags.Lookup(name)
	if flag == nil || value == "" {
		return nil, nil // checkArgs refuses an unknown one, unless another version runs
	}
	var files []string
	switch placeholder, _ := pflag.UnquoteUsage(flag); strings.ToLower(placeholder) {
	case "file":
		files = []string{value}
	case "files": // cert,key:name,name
		pair, _, _ := strings.Cut(value, ":")
		files = strings.Split(pair, ",")
	case "directory":
		return nil, errors.New("must not be given: our Pod has no directory that it may write to")
	}
	for _, file := range files {
		if !path.IsAbs(file) {
			return nil, fmt.Errorf("must name a file that our Pod can mount: %s is not an absolute path", file)
		}
		if err := manifests.Mountable(file); err != nil {
			return nil, fmt.Errorf("must name a file that our Pod can mount: %w", err)
		}
	}
	return files, nil
}

// complete adds the flags of this call to the options of our manifest, and returns the flags of our process.
func (p *podFlags) complete(o *manifests.StaticPodOptions) ([]string, error) {
	o.HostBinary, o.TokenSecrets = p.binary, p.tokenSecrets
	if o.OnlySigner && staticpod.Command(p.extraArgs).Last(component.KeyRingFlag) == "" {
		o.Args = append(o.Args, component.Assign(component.KeyRingFlag, manifests.KeyRing))
	}
	o.Args = append(o.Args, p.extraArgs...)
	for _, arg := range p.extraArgs {
		files, err := filesOf(arg)
		if err != nil {
			return nil, err // validate has named the flag
		}
		o.Files = append(o.Files, files...)
	}
	if p.image != "" {
		o.Image, o.HostBinary = p.image, ""
	}
	args, err := o.MainArgs()
	if err != nil {
		return nil, err
	}
	return args, p.checkArgs(args)
}

// checkArgs refuses flags with which the process would end at every start, whether they are given or carried
// over. It does not check the flags of another version.
func (p *podFlags) checkArgs(args []string) error {
	if p.image != "" || p.binary != p.self {
		return nil
	}
	o, _, err := secureport.Parse(args)
	problems := []error{err}
	switch {
	case err != nil:
	case secureport.Of(o).Serving.BindPort == 0:
		problems = []error{errors.New("--secure-port=0 leaves the kubelet no port to probe")}
	default:
		problems = o.Validate()
	}
	for i, problem := range problems {
		problems[i] = fmt.Errorf("our process would not start with --extra-arg, given or kept (--reset drops what is kept), and "+
			"what is carried over from %s: %w", component.ControllerManager, problem)
	}
	return cli.InvalidFlags(options.ProgramName+" kubeadm takeover", problems)
}

// createsSecrets reports whether our process, by the flags of our manifest, has to be allowed to create Secrets.
func createsSecrets(own staticpod.Command) (bool, error) {
	o, err := ownOptions(own, component.KeyFlag, component.KeyRingFlag, "token-secrets")
	if err != nil {
		return false, err
	}
	rules, err := permissions.Rules(o)
	return slices.ContainsFunc(rules, func(r permissions.Rule) bool { return r.Part == permissions.TokenSecrets }), err
}

// ownOptions are those of the named flags in our manifest. Flags that only another version knows do not matter.
func ownOptions(own staticpod.Command, names ...string) (*options.Options, error) {
	var args []string
	if component.OnlySigns(own) {
		args = append(args, manifests.SignerCommand)
	}
	for _, name := range names {
		for _, value := range own.All(name) {
			args = append(args, component.Assign(name, value))
		}
	}
	o, _, err := secureport.Parse(args)
	if err != nil {
		return nil, fmt.Errorf("our manifest: %w; --reset drops what the last takeover was given", err)
	}
	return o, nil
}

// keep gives this takeover the flags of the last one that it does not have itself, and records them all. Of
// --extra-arg each flag of our process counts for itself.
func (f *nodeFlags) keep(fs *pflag.FlagSet) error {
	data, err := nodefile.Read(f.recordFile())
	if err != nil {
		return err // it names the path
	}
	record, err := component.ParseRecord(data)
	if err == nil && !f.Reset {
		f.Kept = record.Flags
	}
	f.Kept = slices.DeleteFunc(f.Kept, func(flag string) bool { return f.Pod.has(fs, flag) })
	for _, flag := range f.Kept {
		name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		if err := fs.Set(name, value); err != nil {
			return fmt.Errorf("%s: %w; --reset goes on without", f.recordFile(), err)
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
		return slices.ContainsFunc(p.extraArgs, func(arg string) bool { return staticpod.FlagName(arg) == staticpod.FlagName(value) })
	}
	return fs.Changed(name)
}

// recordNotes say what a rewrite of our manifest keeps, and what goes: a record may be missing, and an
// operator may have edited the manifest.
func (c *Config) recordNotes(o *observed, d *desired) (notes []string) {
	if len(c.Kept) > 0 {
		notes = append(notes, "Kept from the last takeover: "+strings.Join(c.Kept, " ")+". --reset drops them.")
	}
	gone := slices.DeleteFunc(slices.Clone(o.current), func(arg string) bool { return slices.Contains(d.own, arg) })
	if len(gone) > 0 {
		notes = append(notes, "Our process loses: "+strings.Join(gone, " ")+".")
	}
	return notes
}

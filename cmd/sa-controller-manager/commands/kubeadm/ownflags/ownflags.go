// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownflags answers what this program does with the flags of its manifest.
package ownflags

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/options/secureport"
	"sa-controller-manager/cmd/sa-controller-manager/app/permissions"
	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/manifests"
	"sa-controller-manager/manifests/component"
	"sa-controller-manager/manifests/staticpod"
)

// Flags implements takeover.Flags.
type Flags struct{}

// AsKCM implements takeover.Flags.
func (Flags) AsKCM(name string) bool {
	flag := lookup(name)
	return flag != nil && strings.HasPrefix(options.OriginOf(flag), "as KCM")
}

// lookup returns a flag of the manager, or nil.
func lookup(name string) *pflag.Flag {
	_, flags, err := secureport.Parse(nil)
	if err != nil {
		return nil // the defaults of this program parse
	}
	return flags.Lookup(name)
}

// NotOfSigner reports whether only the manager has a flag, as far as this version knows it.
func NotOfSigner(name string) bool {
	_, signer, err := secureport.Parse([]string{manifests.SignerCommand})
	return err == nil && lookup(name) != nil && signer.Lookup(name) == nil
}

// Files implements takeover.Flags. The placeholder of the value in the help text says whether a flag names files.
func (Flags) Files(arg string) ([]string, error) {
	name, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	flag := lookup(name)
	if flag == nil || value == "" {
		return nil, nil // Check refuses an unknown one, unless another version runs
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

// Check implements takeover.Flags.
func (Flags) Check(args []string) error {
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

// CreatesSecrets implements takeover.Flags.
func (Flags) CreatesSecrets(own staticpod.Command) (bool, error) {
	o, err := ownOptions(own, component.KeyFlag, component.KeyRingFlag, "token-secrets")
	if err != nil {
		return false, err
	}
	rules, err := permissions.Rules(o)
	return slices.ContainsFunc(rules, func(r permissions.Rule) bool { return r.Part == permissions.TokenSecrets }), err
}

// Webhook implements takeover.Flags.
func (Flags) Webhook(own staticpod.Command) (ordinary bool, lacks string, err error) {
	o, err := ownOptions(own, "webhook-port", "webhook-failure-policy", "pod-token", "limit-secret-references")
	switch {
	case err != nil:
		return false, "", err
	case o.Webhook.Port == 0:
		return false, "it serves no webhook (--webhook-port=0)", nil
	case o.Webhook.FailurePolicy != string(admissionregistrationv1.Fail):
		return false, "Pods pass it by while it does not answer (--webhook-failure-policy=" + o.Webhook.FailurePolicy + ")", nil
	}
	return o.Admission.Plugin().Ordinary(), "", nil
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

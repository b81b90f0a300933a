// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sa-controller-manager/manifests"
	"sa-controller-manager/manifests/staticpod"
)

// Names of controllers that our process runs in the place of kube-controller-manager's.
const (
	RootCAPublisher = "root-ca-certificate-publisher-controller"

	// tokenController is started before --controllers is read (kube-controller-manager v1.36,
	// cmd/kube-controller-manager/app/controllermanager.go), and runs whenever kube-controller-manager has a key.
	tokenController = "serviceaccount-token-controller"
	trustBundles    = "kube-apiserver-serving-clustertrustbundle-publisher-controller"

	// trustBundleMinor is the first minor version whose kube-apiserver serves ClusterTrustBundles in v1. Before that we
	// publish none.
	trustBundleMinor = 37

	// allControllers is the default of --controllers. Giving the flag replaces it.
	allControllers = "*"
)

// replacedControllers are those of an image that --controllers turns off: an unknown name keeps kube-controller-manager from
// starting. The first three names exist since v1.28.
func replacedControllers(image string) []string {
	replaced := []string{
		"serviceaccount-controller", RootCAPublisher, "legacy-serviceaccount-token-cleaner-controller",
	}
	if version(image) >= trustBundleMinor {
		replaced = append(replaced, trustBundles)
	}
	return replaced
}

// alias returns the older name of a controller, or its only one.
func alias(name string) string {
	return cmp.Or(map[string]string{
		"serviceaccount-controller":                      "serviceaccount",
		RootCAPublisher:                                  "root-ca-cert-publisher",
		"legacy-serviceaccount-token-cleaner-controller": "legacy-service-account-token-cleaner",
		tokenController:                                  "serviceaccount-token",
	}[name], name)
}

// Stock returns which of the controllers that we replace a kube-controller-manager runs.
func Stock(image string, command staticpod.Command) []string {
	names := slices.DeleteFunc(replacedControllers(image), func(name string) bool { return !Enabled(command, name) })
	if command.Last(KeyFlag) != "" {
		names = append(names, tokenController)
	}
	return names
}

// Enabled reports whether a command turns a controller on that we replace. Without the flag it runs all, but for the signer.
func Enabled(command staticpod.Command, name string) bool {
	on, _ := isEnabled(command, name)
	return on && !OnlySigns(command)
}

// OnlySigns reports whether our process, with this command, is the external signer and nothing else.
func OnlySigns(own staticpod.Command) bool { return slices.Contains(own, manifests.SignerCommand) }

// isEnabled reports whether a command turns a controller on that is on by default, and whether it names it. As in
// IsControllerEnabled (k8s.io/controller-manager/app/helper.go) the first mention counts, and without one "*" does, which
// "-*" cancels for our process.
func isEnabled(command staticpod.Command, name string) (on, named bool) {
	list := command.List(ControllersFlag)
	for _, one := range list {
		switch one {
		case name, alias(name):
			return true, true
		case "-" + name, "-" + alias(name):
			return false, true
		}
	}
	all := slices.Contains(list, allControllers) && !slices.Contains(list, "-"+allControllers)
	return all || len(command.All(ControllersFlag)) == 0, false
}

// controllersOff turns off the controllers that we replace.
func controllersOff(m *staticpod.Manifest) (t Taken, err error) {
	if err := m.Understands(ControllersFlag, KeyFlag); err != nil {
		return t, err
	}
	var off []string
	for _, name := range replacedControllers(m.Image()) {
		on, named := isEnabled(m.Command(), name)
		if on && named {
			return t, fmt.Errorf("--%s names %s, and the first mention of a controller counts; remove it there first, "+
				"and from controllerManager.extraArgs in the ConfigMap kube-system/kubeadm-config", ControllersFlag, name)
		} else if on {
			off = append(off, "-"+name)
		}
	}
	if len(off) > 0 && len(m.Command().All(ControllersFlag)) == 0 {
		off = append([]string{allControllers}, off...)
	}
	if len(off) > 0 {
		t.Lines = append(t.Lines, Assign(ControllersFlag, strings.Join(off, ",")))
	}
	if m.Command().Last(KeyFlag) != "" {
		t.Lines = append(t.Lines, Assign(KeyFlag, ""))
	}
	return t, nil
}

// oldestMinor is the minor version of the oldest Kubernetes 1.x that a takeover supports.
const oldestMinor = 30

// notOlder refuses versions before an oldest one, and an image that names none: what a takeover does depends on it.
func notOlder(image string, oldest int, what string) error {
	switch minor := version(image); {
	case minor == 0:
		return fmt.Errorf("its image %s names no version, which decides what is changed; write it before the digest, "+
			"as in NAME:v1.37.2@sha256:DIGEST", image)
	case minor < oldest:
		return fmt.Errorf("%s is too old: v1.%d is the oldest %s", image, oldest, what)
	}
	return nil
}

// version returns the minor version of Kubernetes 1.x in the tag of an image, or 0.
func version(image string) (minor int) {
	name, _, _ := strings.Cut(image, "@")
	if _, err := fmt.Sscanf(name[strings.LastIndex(name, ":")+1:], "v1.%d.", &minor); err != nil {
		return 0
	}
	return minor
}

// RootCAFlag is the same flag in kube-controller-manager and in ours.
const RootCAFlag = "root-ca-file"

// carriedFlags are those of kube-controller-manager that our process gets. The others that our process accepts as
// kube-controller-manager does are about its own clients, election, port, metrics, log and controllers.
var carriedFlags = []string{
	KeyFlag, RootCAFlag, ControllersFlag, "legacy-service-account-token-clean-up-period", "concurrent-serviceaccount-token-syncs",
	"leader-elect-lease-duration", "leader-elect-renew-deadline", "leader-elect-retry-period",
}

// Carried is what our process takes over of kube-controller-manager as the operator configured it.
type Carried struct {
	// Args are our flags, and Files what they name on the host. Notes, for the user, name its flags that this version does not know.
	Args, Files, Notes []string

	*staticpod.Manifest

	own staticpod.Command // of our manifest that is there
}

// Carry decides about every flag, and refuses values that it cannot carry over. same reports whether our process accepts a flag
// as kube-controller-manager does, and own is the command of our manifest if no record says what takeovers have changed: it then
// knows more.
func Carry(m *staticpod.Manifest, same func(flag string) bool, own staticpod.Command) (*Carried, error) {
	k := &Carried{Manifest: m, own: own}
	var all []error
	// Without the first two flags kube-controller-manager differs from our manifest.
	names := []string{KeyFlag, RootCAFlag}
	for _, one := range m.Command()[1:] {
		names = append(names, staticpod.FlagName(one))
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		if !slices.Contains(carriedFlags, name) {
			if !same(name) {
				k.Notes = append(k.Notes, fmt.Sprintf("Not taken over: %s of %s: this version knows neither the flag nor what it changes.",
					Assign(name, strings.Join(m.Command().All(name), " ")), ControllerManager))
			}
			continue
		}
		value, err := m.Command().Last(name), m.Understands(name)
		switch file := name == KeyFlag || name == RootCAFlag; {
		case err != nil:
		case name == ControllersFlag:
			value = k.controllers()
		case file && value != "":
			value, err = k.visible(value)
		case name == KeyFlag: // without a root CA file, both publish the CA of their kubeconfig
			value = k.ownKey()
		}
		if err != nil {
			all = append(all, fmt.Errorf("--%s of %s: %w", name, ControllerManager, err))
		}
		if value != "" || name != ControllersFlag {
			k.Args = append(k.Args, Assign(name, value))
		}
	}
	return k, errors.Join(all...)
}

// ownKey returns the signing key that our manifest names.
func (k *Carried) ownKey() string {
	for _, file := range slices.Backward(k.own.All(KeyFlag)) {
		if file != "" {
			k.Files = append(k.Files, file)
			return file
		}
	}
	return ""
}

// visible returns the path at which our Pod sees a file, which is its path on the host.
func (k *Carried) visible(file string) (string, error) {
	host, err := k.HostPath(file)
	if err != nil {
		return "", err
	}
	if err := manifests.Mountable(host); err != nil {
		return "", err
	}
	k.Files = append(k.Files, host)
	return host, nil
}

// controllers turns off the controllers that are off in kube-controller-manager, "" if none is.
func (k *Carried) controllers() string {
	selectors := []string{allControllers}
	for _, one := range replacedControllers(k.Image()) {
		// Without a record, those that ours runs may be off because of ours.
		if !Enabled(k.Command(), one) && (k.own == nil || !Enabled(k.own, one)) {
			selectors = append(selectors, "-"+one)
		}
	}
	if len(selectors) == 1 {
		return ""
	}
	return strings.Join(selectors, ",")
}

// running returns the controllers that run in kube-controller-manager, as a manifest is, and in our process with a command.
func running(kcm *staticpod.Manifest, own staticpod.Command) (there, here []string) {
	here = slices.DeleteFunc(replacedControllers(kcm.Image()), func(name string) bool { return !Enabled(own, name) })
	if own.Last(KeyFlag)+own.Last(KeyRingFlag) != "" && Enabled(own, tokenController) {
		here = append(here, tokenController)
	}
	return Stock(kcm.Image(), kcm.Command()), here
}

// CheckControllers refuses to disable a controller in kube-controller-manager that our process would not
// run with its command. kcm is the manifest as the operator has it.
func CheckControllers(kcm *staticpod.Manifest, own staticpod.Command) error {
	there, here := running(kcm, own)
	for _, name := range there {
		if !slices.Contains(here, name) {
			return fmt.Errorf("%s runs in kube-controller-manager and would run nowhere after the takeover: our manifest has --%s=%s, "+
				"--%s=%s and --%s=%s; change that with --extra-arg (without \"*\" only controllers that are named run)",
				name, ControllersFlag, cmp.Or(strings.Join(own.All(ControllersFlag), ","), allControllers), KeyFlag, own.Last(KeyFlag),
				KeyRingFlag, own.Last(KeyRingFlag))
		}
	}
	return nil
}

// RunsHereAlone returns the controllers that our process runs with its command and kube-controller-manager, as its manifest
// is, does not.
func RunsHereAlone(kcm *staticpod.Manifest, own staticpod.Command) []string {
	there, here := running(kcm, own)
	return slices.DeleteFunc(here, func(name string) bool { return slices.Contains(there, name) })
}

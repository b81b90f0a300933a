// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"fmt"
	"slices"
	"strings"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
)

// controllersOff turns three of the four controllers off. The fourth, the token
// controller, is built before --controllers is looked at (kube-controller-manager v1.36,
// cmd/kube-controller-manager/app/controllermanager.go) and runs whenever there is a key.
const controllersOff = "-serviceaccount-controller,-root-ca-certificate-publisher-controller,-legacy-serviceaccount-token-cleaner-controller"

// allControllers is the default of --controllers. A flag that is given replaces it.
const allControllers = "*"

// replacedController is a controller of kube-controller-manager under both its names.
type replacedController struct{ name, alias string }

// replacedControllers are those that --controllers decides on. Since v1.28
// kube-controller-manager has the names; the aliases are older.
func replacedControllers() []replacedController {
	return []replacedController{
		{"serviceaccount-controller", "serviceaccount"},
		{"root-ca-certificate-publisher-controller", "root-ca-cert-publisher"},
		{"legacy-serviceaccount-token-cleaner-controller", "legacy-service-account-token-cleaner"},
	}
}

// ourControllers are those, and the one that runs there as long as there is a key.
func ourControllers() []replacedController {
	return append(replacedControllers(), replacedController{options.ServiceAccountTokenController, "serviceaccount-token"})
}

// controllersOut turns off the controllers that we replace.
func controllersOut(m *staticpod.Manifest) (staticpod.Edit, error) {
	if err := supported(m.Image()); err != nil {
		return staticpod.Edit{}, err
	}
	flags, err := m.Flags(controllersFlag, keyFlag)
	if err != nil {
		return staticpod.Edit{}, err
	}
	controllers := flags[controllersFlag]
	var edit staticpod.Edit
	list := staticpod.List(controllers)
	running := 0
	for _, replaced := range replacedControllers() {
		on, named := decided(list, replaced)
		if on && named {
			return staticpod.Edit{}, fmt.Errorf("--%s names %s, and the first mention of a controller counts; take it out there first, and out of controllerManager.extraArgs in the ConfigMap kube-system/kubeadm-config",
				controllersFlag, replaced.name)
		}
		if on || len(controllers) == 0 {
			running++
		}
	}
	switch {
	case running == 0:
	case len(controllers) == 0:
		edit.Append = append(edit.Append, assign(controllersFlag, allControllers+","+controllersOff))
	default:
		edit.Append = append(edit.Append, assign(controllersFlag, controllersOff))
	}
	if staticpod.Last(flags[keyFlag]) != "" {
		edit.Append = append(edit.Append, assign(keyFlag, ""))
	}
	return edit, nil
}

// decided tells what a list says about a controller that is on by default, as
// IsControllerEnabled does (k8s.io/controller-manager/app/helper.go): the first mention
// counts, and without one "*" does.
func decided(list []string, c replacedController) (on, named bool) {
	for _, one := range list {
		switch one {
		case c.name, c.alias:
			return true, true
		case "-" + c.name, "-" + c.alias:
			return false, true
		}
	}
	return slices.Contains(list, allControllers), false
}

// oldestMinor is that of the oldest Kubernetes 1.x that a takeover knows.
const oldestMinor = 30

// supported refuses what is older. of is an image or a version.
func supported(of string) error { return notOlder(of, oldestMinor, "that is supported") }

// notOlder takes an image without a version in its tag for a new one: versionSupported asks the
// process that runs.
func notOlder(of string, oldest int, what string) error {
	if major, minor, ok := version(of); ok && major == 1 && minor < oldest {
		return fmt.Errorf("%s is too old: v1.%d is the oldest %s", of, oldest, what)
	}
	return nil
}

// version is that of an image by its tag, or of a text that begins with it.
func version(of string) (major, minor int, ok bool) {
	name, _, _ := strings.Cut(of, "@")
	tag := name[strings.LastIndex(name, ":")+1:]
	_, err := fmt.Sscanf(tag, "v%d.%d.", &major, &minor)
	return major, minor, err == nil
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"fmt"
	"slices"
	"strings"

	"sa-controller-manager/manifests/staticpod"
)

// threeOff turns three of the controllers off, and trustBundleOff the one that comes with trustBundleMinor: an
// unknown name keeps kube-controller-manager from starting. The last one, the token controller, is started before
// --controllers is read (kube-controller-manager v1.36, cmd/kube-controller-manager/app/controllermanager.go) and
// runs whenever it has a key.
const (
	threeOff       = "-serviceaccount-controller,-root-ca-certificate-publisher-controller,-legacy-serviceaccount-token-cleaner-controller"
	trustBundleOff = "-" + trustBundles

	trustBundles = "kube-apiserver-serving-clustertrustbundle-publisher-controller"
)

// trustBundleMinor is the first minor version whose kube-apiserver serves ClusterTrustBundles in v1. Before that we
// publish none.
const trustBundleMinor = 37

// newest is an image with all controllers.
const newest = ":v1.999."

// allControllers is the default of --controllers. Giving the flag replaces it.
const allControllers = "*"

// replacedController has both names of a controller of kube-controller-manager, and what turns it off.
type replacedController struct{ name, alias, off string }

// replacedControllers are those of an image that --controllers turns off. The first three names exist since v1.28,
// the aliases are older.
func replacedControllers(image string) []replacedController {
	replaced := []replacedController{
		{"serviceaccount-controller", "serviceaccount", threeOff},
		{"root-ca-certificate-publisher-controller", "root-ca-cert-publisher", threeOff},
		{"legacy-serviceaccount-token-cleaner-controller", "legacy-service-account-token-cleaner", threeOff},
	}
	if version(image) >= trustBundleMinor {
		// It has no alias.
		replaced = append(replaced, replacedController{trustBundles, trustBundles, trustBundleOff})
	}
	return replaced
}

// tokenController runs in kube-controller-manager whenever that has a key: its --controllers does not matter.
func tokenController() replacedController {
	return replacedController{"serviceaccount-token-controller", "serviceaccount-token", ""}
}

// Stock returns which of the controllers that we replace a kube-controller-manager runs.
func Stock(image string, command staticpod.Command) (names []string) {
	for _, one := range replacedControllers(image) {
		if Enabled(command, one.name) {
			names = append(names, one.name)
		}
	}
	if command.Last(KeyFlag) != "" {
		names = append(names, tokenController().name)
	}
	return names
}

// Enabled reports whether a command turns a controller on that we replace. Without a list it runs all.
func Enabled(command staticpod.Command, name string) bool {
	list := command.List(ControllersFlag)
	for _, one := range append(replacedControllers(newest), tokenController()) {
		if one.name == name {
			on, _ := isEnabled(list, one)
			return on || len(list) == 0
		}
	}
	return false
}

// controllersOff turns off the controllers that we replace.
func controllersOff(m *staticpod.Manifest) (t Taken, err error) {
	if err := supported(m.Image()); err != nil {
		return t, err
	}
	if err := m.Understands(ControllersFlag, KeyFlag); err != nil {
		return t, err
	}
	list := m.Command().List(ControllersFlag)
	given := len(m.Command().All(ControllersFlag)) > 0
	var off []string
	for _, replaced := range replacedControllers(m.Image()) {
		on, named := isEnabled(list, replaced)
		if on && named {
			return t, fmt.Errorf("--%s names %s, and the first mention of a controller counts; remove it there first, "+
				"and from controllerManager.extraArgs in the ConfigMap kube-system/kubeadm-config", ControllersFlag, replaced.name)
		}
		if (on || !given) && !slices.Contains(off, replaced.off) {
			off = append(off, replaced.off)
		}
	}
	if len(off) > 0 && !given {
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

// isEnabled reports whether a list turns a controller on that is on by default, and whether it names
// it. As in IsControllerEnabled (k8s.io/controller-manager/app/helper.go) the first mention counts, and
// without one "*" does.
func isEnabled(list []string, c replacedController) (on, named bool) {
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

// oldestMinor is the minor version of the oldest Kubernetes 1.x that a takeover supports.
const oldestMinor = 30

// supported refuses older versions, and an image that names none: what a takeover does depends on it.
func supported(image string) error {
	if version(image) == 0 {
		return fmt.Errorf("its image %s names no version, which decides what is changed; write it before the digest, "+
			"as in NAME:v1.37.2@sha256:DIGEST", image)
	}
	return notOlder(image, oldestMinor, "that is supported")
}

func notOlder(image string, oldest int, what string) error {
	if version(image) < oldest {
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

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sa-controller-manager/manifests/staticpod"
)

// Names of controllers that our process runs in the place of kube-controller-manager's.
const (
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
		"serviceaccount-controller", "root-ca-certificate-publisher-controller", "legacy-serviceaccount-token-cleaner-controller",
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
		"root-ca-certificate-publisher-controller":       "root-ca-cert-publisher",
		"legacy-serviceaccount-token-cleaner-controller": "legacy-service-account-token-cleaner",
		tokenController: "serviceaccount-token",
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

// Enabled reports whether a command turns a controller on that we replace. Without the flag it runs all.
func Enabled(command staticpod.Command, name string) bool {
	on, _ := isEnabled(command, name)
	return on
}

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
	return len(command.All(ControllersFlag)) == 0 || slices.Contains(list, allControllers) && !slices.Contains(list, "-"+allControllers), false
}

// controllersOff turns off the controllers that we replace.
func controllersOff(m *staticpod.Manifest) (t Taken, err error) {
	if err := supported(m.Image()); err != nil {
		return t, err
	}
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

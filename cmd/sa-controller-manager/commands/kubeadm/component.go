// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"fmt"
	"slices"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
)

// The components whose manifests are edited, named as their Pods and files.
const (
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
)

const (
	controllersFlag = "controllers"
	keyFlag         = "service-account-private-key-file"
	disableFlag     = "disable-admission-plugins"
	enableFlag      = "enable-admission-plugins"
	// admissionControlFlag is the older form of disableFlag and enableFlag.
	admissionControlFlag = "admission-control"

	pluginName = "ServiceAccount"
)

// component is kube-apiserver or kube-controller-manager.
type component struct {
	name string
	// lines are the flags that a takeover appends to the command.
	lines []string
	// mounts are the directories that a takeover mounts.
	mounts []staticpod.Mount
	// out returns the edit of a takeover, empty if everything that we replace is off already.
	out func(*staticpod.Manifest) (staticpod.Edit, error)
	// rest, unless nil, adds what does not follow from lines to the edit of a handback.
	rest func(*staticpod.Manifest, staticpod.Edit) (staticpod.Edit, error)
}

func apiServerComponent() component {
	return component{
		name:  apiServer,
		lines: []string{assign(disableFlag, pluginName)},
		out:   pluginOut,
	}
}

func controllerManagerComponent() component {
	return component{
		name:  controllerManager,
		lines: []string{assign(controllersFlag, controllersOff), assign(keyFlag, "")},
		out:   controllersOut,
	}
}

func assign(flag, value string) string { return "--" + flag + "=" + value }

// webhookPlugins are the plugins of kube-apiserver that call webhooks, in the order of
// registration.StaticDirs.
func webhookPlugins() []string {
	return []string{"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"}
}

// pluginOut disables the ServiceAccount plugin of kube-apiserver.
func pluginOut(m *staticpod.Manifest) (staticpod.Edit, error) {
	if err := supported(m.Image()); err != nil {
		return staticpod.Edit{}, err
	}
	flags, err := m.Flags(admissionControlFlag, enableFlag, disableFlag)
	if err != nil {
		return staticpod.Edit{}, err
	}
	if len(flags[admissionControlFlag]) > 0 {
		return staticpod.Edit{}, fmt.Errorf("--%s is in use, which kube-apiserver does not accept together with --%s; use --%s and --%s instead first",
			admissionControlFlag, disableFlag, enableFlag, disableFlag)
	}
	if slices.Contains(staticpod.List(flags[enableFlag]), pluginName) {
		return staticpod.Edit{}, fmt.Errorf("--%s names %s, which kube-apiserver does not accept for a disabled plugin; remove it there first, and from apiServer.extraArgs in the ConfigMap kube-system/kubeadm-config: it is on by default",
			enableFlag, pluginName)
	}
	disabled := staticpod.List(flags[disableFlag])
	for _, webhooks := range webhookPlugins() {
		if slices.Contains(disabled, webhooks) {
			return staticpod.Edit{}, fmt.Errorf("--%s names %s, and without that plugin no webhook is called", disableFlag, webhooks)
		}
	}
	if slices.Contains(disabled, pluginName) {
		return staticpod.Edit{}, nil
	}
	return staticpod.Edit{Append: apiServerComponent().lines}, nil
}

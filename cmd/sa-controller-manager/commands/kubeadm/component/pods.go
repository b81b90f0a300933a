// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package component

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/staticpod"
)

// Stock finds components that do our work too, as after "kubeadm upgrade" without the patches of a
// takeover. By the commands of the mirror pods it returns those of kube-apiserver with the
// ServiceAccount plugin, and those of kube-controller-manager with the controllers that they run. It
// leaves out controllers that are off in our process on the same node. looked is the number of mirror
// pods of both components.
func Stock(pods []corev1.Pod) (servers, managers []string, looked int) {
	own := map[string][]string{} // --controllers of our process, by node
	for i := range pods {
		if IsMirror(&pods[i], Manager) {
			own[pods[i].Spec.NodeName] = PodCommand(&pods[i]).List(ControllersFlag)
		}
	}
	for i := range pods {
		pod := &pods[i]
		if IsMirror(pod, APIServer) {
			looked++
			if !PluginIsOff(pod) {
				servers = append(servers, pod.Name)
			}
		}
		if !IsMirror(pod, ControllerManager) {
			continue
		}
		looked++
		if names := stockControllers(pod, own[pod.Spec.NodeName]); len(names) > 0 {
			managers = append(managers, pod.Name+" ("+strings.Join(names, ", ")+")")
		}
	}
	return servers, managers, looked
}

func stockControllers(pod *corev1.Pod, own []string) (names []string) {
	command := PodCommand(pod)
	for _, controller := range replacedControllers(pod.Spec.Containers[0].Image) {
		if runsController(command.List(ControllersFlag), controller) && runsController(own, controller) {
			names = append(names, controller.name)
		}
	}
	if command.Last(KeyFlag) != "" && runsController(own, tokenController()) {
		names = append(names, tokenController().name)
	}
	return names
}

// RunNowhere returns the controllers without which a namespace can have no Pods, and which are off in every mirror pod
// of kube-controller-manager and do not run in ours. led says that a replica leads, which need not be a mirror pod.
func RunNowhere(pods []corev1.Pod, led bool) (names []string) {
	for _, controller := range replacedControllers("")[:2] {
		kcm, inKCM := running(pods, ControllerManager, controller)
		ours, inOurs := running(pods, Manager, controller)
		if kcm && !inKCM && (!led || ours && !inOurs) {
			names = append(names, controller.name)
		}
	}
	return names
}

// running reports whether there are mirror pods of a component, and whether one runs a controller.
func running(pods []corev1.Pod, component string, c replacedController) (there, runs bool) {
	for i := range pods {
		if IsMirror(&pods[i], component) {
			there, runs = true, runs || runsController(PodCommand(&pods[i]).List(ControllersFlag), c)
		}
	}
	return there, runs
}

// runsController reports whether a process with this list runs a controller. Without a list it runs all.
func runsController(list []string, c replacedController) bool {
	on, _ := isEnabled(list, c)
	return on || len(list) == 0
}

// IsMirror reports whether a Pod is the mirror pod of a component.
func IsMirror(pod *corev1.Pod, component string) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror && pod.Name == component+"-"+pod.Spec.NodeName
}

// PodCommand returns the command lines of all containers.
func PodCommand(pod *corev1.Pod) (command staticpod.Command) {
	for _, container := range pod.Spec.Containers {
		command = slices.Concat(command, container.Command, container.Args)
	}
	return command
}

// PluginIsOff reports whether a kube-apiserver has no ServiceAccount plugin.
func PluginIsOff(pod *corev1.Pod) bool { return pluginIsOff(PodCommand(pod)) }

func pluginIsOff(command staticpod.Command) bool {
	return slices.Contains(command.List(disableFlag), pluginName)
}

// PodFlag returns the last value of a flag in a Pod's command, "" if it is not given.
func PodFlag(pod *corev1.Pod, name string) string { return PodCommand(pod).Last(name) }

// OwnCommand returns the command lines in our manifest, nil if it is none.
func OwnCommand(manifest []byte) staticpod.Command {
	var pod corev1.Pod
	if yaml.Unmarshal(manifest, &pod) != nil {
		return nil
	}
	return PodCommand(&pod)
}

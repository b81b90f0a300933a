// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
)

// Stock finds components that do our work too, as after "kubeadm upgrade" without the patches of a
// takeover. By the commands of the mirror pods it returns those of kube-apiserver with the
// ServiceAccount plugin, and those of kube-controller-manager with the controllers that they run. It
// leaves out controllers that are off in our process on the same node. looked is the number of mirror
// pods of both components.
func Stock(pods []corev1.Pod) (servers, managers []string, looked int) {
	own := map[string][]string{} // --controllers of our process, by node
	for i := range pods {
		if isMirror(&pods[i], manager) {
			own[pods[i].Spec.NodeName] = listIn(podCommand(&pods[i]), controllersFlag)
		}
	}
	for i := range pods {
		pod := &pods[i]
		if isMirror(pod, apiServer) {
			looked++
			if !pluginIsOff(podCommand(pod)) {
				servers = append(servers, pod.Name)
			}
		}
		if !isMirror(pod, controllerManager) {
			continue
		}
		looked++
		if names := stockControllers(pod, own[pod.Spec.NodeName]); len(names) > 0 {
			managers = append(managers, pod.Name+" ("+strings.Join(names, ", ")+")")
		}
	}
	return servers, managers, looked
}

func stockControllers(pod *corev1.Pod, own []string) []string {
	var names []string
	for _, controller := range ourControllers() {
		on := runsController(listIn(podCommand(pod), controllersFlag), controller)
		if controller.name == options.ServiceAccountTokenController {
			on = last(flagsIn(podCommand(pod), keyFlag)) != ""
		}
		if on && runsController(own, controller) {
			names = append(names, controller.name)
		}
	}
	return names
}

// runsController reports whether a process with this list runs a controller. Without a list it runs all.
func runsController(list []string, c replacedController) bool {
	on, _ := isEnabled(list, c)
	return on || len(list) == 0
}

func isMirror(pod *corev1.Pod, component string) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror && pod.Name == component+"-"+pod.Spec.NodeName
}

// podCommand returns the command lines of all containers.
func podCommand(pod *corev1.Pod) (command []string) {
	for _, container := range pod.Spec.Containers {
		command = slices.Concat(command, container.Command, container.Args)
	}
	return command
}

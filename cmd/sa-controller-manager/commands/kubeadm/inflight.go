// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeadm

import (
	"fmt"
	"strconv"
	"strings"

	"sa-controller-manager/admission/registration"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/commands/kubeadm/component"
)

// noteEarlier names what changes Pods before our webhook, and with kube-apiserver's plugin does so after it.
func noteEarlier(o *observed, d *desired) string {
	early := o.byURL
	if d.fromFiles() {
		early = o.earlier
	}
	if len(early) == 0 || d.mode == registration.None {
		return ""
	}
	return "These change Pods before our webhook gives them account, token and pull secrets (docs/comparison.md): " +
		strings.Join(early, ", ") + "."
}

// checkInFlight returns a note if kube-apiserver may have more requests in flight than our webhook calls: it would
// refuse Pods of a burst.
func checkInFlight(o *observed, d *desired) string {
	const ourFlag = "webhook-max-in-flight"
	if d.mode == registration.None || d.own == nil {
		return ""
	}
	number := func(text string, otherwise int) int {
		if n, err := strconv.Atoi(text); err == nil {
			return n
		}
		return otherwise
	}
	// The defaults are kube-apiserver's.
	server := component.OwnCommand(o.apiServer().Manifest)
	theirs := number(server.Last("max-requests-inflight"), 400) +
		number(server.Last("max-mutating-requests-inflight"), 200)
	ours := number(d.own.Last(ourFlag), options.New().Webhook.MaxInFlight)
	if theirs <= ours {
		return ""
	}
	return fmt.Sprintf("kube-apiserver may have %d requests in flight, and our webhook answers %d at a time: in a burst "+
		"it would refuse Pods. --extra-arg=--%s=%d is enough.", theirs, ours, ourFlag, theirs)
}

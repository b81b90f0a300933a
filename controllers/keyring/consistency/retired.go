// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"sa-controller-manager/signing/ring"
)

// watchInterval is how often Watch looks up the kube-apiservers.
const watchInterval = 30 * time.Second

// Watch publishes, on the leader or in each process that only signs, which kube-apiservers there are, so that one that
// is down is not forgotten, and since when nothing signs with a retired key: what a prune waits for, so that it outlives
// every process. It returns when ctx ends.
func Watch(ctx context.Context, client kubernetes.Interface, state func() ring.State) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		_, err := Refresh(ctx, client, true)
		if err == nil {
			err = Edit(ctx, client, func(p *Published) error {
				p.follow(state(), time.Now())
				return nil
			})
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Could not publish which kube-apiservers there are")
		}
	}, watchInterval)
}

// Follow records since when nothing signs with a retired key. What was known of an earlier retirement goes. all says that
// every kube-apiserver was asked, so that one which signs is no unknown.
func (p *Published) Follow(state ring.State, signs func(id string) bool, all bool, now time.Time) {
	followed := map[string]time.Time{}
	for _, key := range state.Retired() {
		if signs(key.ID) {
			continue
		}
		if since, known := p.Followed[key.ID]; known {
			followed[key.ID] = since
		} else if all {
			followed[key.ID] = now.UTC().Truncate(time.Second)
		}
	}
	p.Followed = followed
}

// follow is Follow of what hosts say of themselves: on each host of a kube-apiserver a process has to sign for it.
func (p *Published) follow(state ring.State, now time.Time) {
	all := !slices.ContainsFunc(p.APIServers(), func(host string) bool {
		entry, known := p.Entry(host)
		return !known || !entry.Signer
	})
	p.Follow(state, func(id string) bool { return p.Signer(id) != "" }, all, now)
}

// Signer returns the host that signs with a key, "" if none does but those of without.
func (p Published) Signer(id string, without ...string) string {
	for _, entry := range p.Entries {
		if entry.SignsWith == id && !slices.Contains(without, entry.Host) {
			return "host " + entry.Host
		}
	}
	return ""
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package options

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	componentbaseconfig "k8s.io/component-base/config"
	componentbaseoptions "k8s.io/component-base/config/options"
)

// LeaderElection has the flags of leader election.
type LeaderElection struct {
	componentbaseconfig.LeaderElectionConfiguration
}

// NewLeaderElection returns the timings of every Kubernetes component and a Lease name of our own:
// with KCM's name only one of the two could lead.
func NewLeaderElection() LeaderElection {
	return LeaderElection{componentbaseconfig.LeaderElectionConfiguration{
		LeaderElect:       true,
		LeaseDuration:     metav1.Duration{Duration: 15 * time.Second},
		RenewDeadline:     metav1.Duration{Duration: 10 * time.Second},
		RetryPeriod:       metav1.Duration{Duration: 2 * time.Second},
		ResourceLock:      resourcelock.LeasesResourceLock,
		ResourceName:      ProgramName,
		ResourceNamespace: metav1.NamespaceSystem,
	}}
}

// AddFlags binds the group to fs.
func (o *LeaderElection) AddFlags(fs *pflag.FlagSet) {
	all := pflag.NewFlagSet(ProgramName, pflag.ContinueOnError)
	componentbaseoptions.BindLeaderElectionFlags(&o.LeaderElectionConfiguration, all)
	all.VisitAll(func(f *pflag.Flag) {
		if f.Name != "leader-elect-resource-lock" { // ignored: it has one value
			f.Usage = cmp.Or(electionUsages()[f.Name], f.Usage)
			fs.AddFlag(f)
		}
	})
	fs.VisitAll(func(f *pflag.Flag) { SetOrigin(fs, asKCM, f.Name) })
	SetOrigin(fs, asKCM+", where the default is kube-controller-manager", "leader-elect-resource-name")
}

// electionUsages replaces the texts of upstream, which do not say what is elected here.
func electionUsages() map[string]string {
	return map[string]string{
		"leader-elect":                    "Elect a leader: of all replicas it alone runs the controllers and registers the webhook.",
		"leader-elect-lease-duration":     "How long after the leader's last renewal another replica takes over.",
		"leader-elect-renew-deadline":     "How long a leader tries to renew before it stops. Less than --leader-elect-lease-duration.",
		"leader-elect-resource-name":      "Name of the Lease.",
		"leader-elect-resource-namespace": "Namespace of the Lease.",
		"leader-elect-retry-period":       "How often a replica tries to get or to renew the Lease.",
	}
}

// Validate returns every problem of the group. Without leader election nothing is checked, as in KCM.
func (o *LeaderElection) Validate() []error {
	if !o.LeaderElect {
		return nil
	}
	var p Problems
	if msgs := validation.IsDNS1123Subdomain(o.ResourceName); len(msgs) > 0 {
		p.Add("leader-elect-resource-name", o.ResourceName, "must be the name of a Lease: "+msgs[0])
	}
	p.Namespace("leader-elect-resource-namespace", o.ResourceNamespace)
	return append(p, o.validateTimings()...)
}

// validateTimings has the rules of client-go's leaderelection.NewLeaderElector, so that their errors
// are reported together with all others.
func (o *LeaderElection) validateTimings() []error {
	var p Problems
	p.Positive("leader-elect-lease-duration", o.LeaseDuration.Duration)
	p.Positive("leader-elect-renew-deadline", o.RenewDeadline.Duration)
	p.Positive("leader-elect-retry-period", o.RetryPeriod.Duration)
	if len(p) > 0 {
		return p
	}
	if o.LeaseDuration.Duration <= o.RenewDeadline.Duration {
		p.Add("leader-elect-lease-duration", o.LeaseDuration.Duration,
			fmt.Sprintf("must be greater than --leader-elect-renew-deadline (%v)", o.RenewDeadline.Duration))
	}
	if o.RenewDeadline.Duration <= time.Duration(leaderelection.JitterFactor*float64(o.RetryPeriod.Duration)) {
		p.Add("leader-elect-renew-deadline", o.RenewDeadline.Duration,
			fmt.Sprintf("must be greater than %v times --leader-elect-retry-period (%v)", leaderelection.JitterFactor,
				o.RetryPeriod.Duration))
	}
	return p
}

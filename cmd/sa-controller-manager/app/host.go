// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/controllers/informers"
	"sa-controller-manager/controllers/keyprobe"
	"sa-controller-manager/controllers/tokensecrets"
	"sa-controller-manager/internal/check"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/signing"
)

// Phase says when a part starts; it then runs until the process stops.
type Phase int

// The phases in their order. Parts stop in the reverse order.
const (
	Early     Phase = iota // before there is a kubeconfig
	AtOnce                 // kube-apiserver may need it in order to start
	Connected              // once the API server answers
	Leading                // while this process leads
)

// Part is a part that the process runs, or whose health it reports.
type Part struct {
	// Name is also the name of the health check.
	Name  string
	Phase Phase
	// Build sets Run and Check, or neither if the flags disable the part.
	Build func(*Part) error
	// Host, and Informers except in the phase Early, are set before Build is called. Run is called once the informers
	// that Build has asked for have synced.
	Host

	Informers *informers.Informers
	Run       func(ctx context.Context) error
	// Check is a check of /readyz, and Findings one of facts that others report too: a part has one of the two. They
	// return immediately, without a request.
	Check    func() (detail string, err error)
	Findings func() (check.Result, error)
}

// Extras are what the manager does besides its core, which imports nothing of them.
type Extras struct {
	// OpenKeys opens the key store, nil for that of --service-account-private-key-file.
	OpenKeys func(ctx context.Context, h Host) (signing.Store, error)
	// UsesKeys is set if an extra uses keys although the token controller does not run.
	UsesKeys bool
	// Replacements is for the legacy token cleaner.
	Replacements func(*corev1.ServiceAccount, []*tokensecrets.TokenSecret) tokensecrets.Replacement
	// Parts returns rows of the table of parts. They are built after those of the core.
	Parts func() []Part
}

// Host is what the parts have in common. Each part has a copy, so that none can change it for another one. Parts of the phase
// Early are built when only the options and the keys are there.
type Host struct {
	Options     *options.Options
	Controllers options.ControllerSet
	Logger      logr.Logger
	Registry    metrics.KubeRegistry
	// Process is the object that Events about this process regard.
	Process *corev1.ObjectReference

	// Keyring is nil if nothing uses keys.
	Keyring *signing.Keyring
	// Signs guards every token. Fills guards those of Secrets, which do not expire.
	Signs, Fills *signing.Guard

	Clients

	Recorder *events.Recorder
	Loops    *reconcile.Metrics
	// Probe is nil without a Keyring.
	Probe *keyprobe.Prober

	files *files
}

// SignsLegacyTokens reports whether the token controller runs.
func (h Host) SignsLegacyTokens() bool {
	return h.Controllers.Enabled(options.ServiceAccountTokenController) && h.files.store != nil
}

// VerifyOnly returns the keys of the verification key files.
func (h Host) VerifyOnly() []signing.PublicKey { return h.files.publicKeys() }

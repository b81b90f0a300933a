// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package extras

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"k8s.io/component-base/metrics"

	"sa-controller-manager/cmd/sa-controller-manager/app"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/controllers/keyring/hosts"
	"sa-controller-manager/controllers/keyring/reissue"
	"sa-controller-manager/controllers/keyring/relying"
	"sa-controller-manager/controllers/keyring/remote"
	"sa-controller-manager/controllers/keyring/ring"
	"sa-controller-manager/internal/series"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/reload"
	"sa-controller-manager/tokens"
)

// openRing opens the key ring file. A key that cannot sign, because its process does not answer or
// because it is not known where its socket is, is no error: kube-apiserver needs the verification keys
// in order to start, and the check key-backends says what is missing.
func (e *extras) openRing(ctx context.Context, h app.Host) (signing.Store, error) {
	o := &h.Options.Keys
	sockets := func() remote.Sockets { return nil }
	if o.KeySockets != "" {
		file, err := app.Follow(h, options.KeySocketsFlag, o.KeySockets, remote.ParseSockets)
		if err != nil {
			return nil, err
		}
		sockets = file.Get
	}
	e.signers = remote.NewClient(sockets, remote.NewMetrics(h.Registry.MustRegister))
	store, err := ring.Open(o.KeyRing, e.signers.Sign, reload.Options{})
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", options.KeyRingFlag, err)
	}
	if err := sockets().Check(store.Load()); err != nil {
		h.Logger.Info("Warning: a key of the ring cannot sign", "reason", err.Error())
	}
	e.store = store
	return store, checkLegacySigner(ctx, h, store.Load().Active())
}

// checkLegacySigner refuses an active key whose process signs, but not the tokens that the token controller
// has to write. Whether a process that is away would is unknown, and the start must not wait for it.
func checkLegacySigner(ctx context.Context, h app.Host, key *signing.PrivateKey) error {
	if !h.Controllers.Enabled(options.ServiceAccountTokenController) {
		return nil
	}
	if key == nil || key.Signer() == "" || tokens.TrySigner(ctx, key, h.Options.Keys.Issuer()) != nil {
		return nil //nolint:nilerr // it may come back
	}
	if refused, ok := errors.AsType[*signing.UnavailableError](tokens.TryLegacySigner(ctx, key)); !ok || !refused.Refused {
		return nil
	}
	return fmt.Errorf("--%s: %s refuses to sign tokens of Secrets with the active key %s: rotate to another key, "+
		"or disable the token controller with --controllers=*,-%s",
		options.KeyRingFlag, key.Signer(), key.ID(), options.ServiceAccountTokenController)
}

// buildBackends follows the processes that have keys of the ring. Its check never fails: while one is
// away, all keys verify.
func (e *extras) buildBackends(p *app.Part) error {
	if p.Keyring == nil || e.signers == nil {
		return nil
	}
	p.Run = func(ctx context.Context) error {
		defer e.signers.Close()
		e.signers.Watch(ctx, remote.Watch{
			Ring: p.Keyring.Ring,
			Probe: func(ctx context.Context, key *signing.PrivateKey) error {
				return tokens.TrySigner(ctx, key, p.Options.Keys.Issuer())
			},
			Away: func(key *signing.PrivateKey, reason string) {
				p.Recorder.Warn(p.Process, "SigningKeyAway", fmt.Sprintf("%s does not sign with key %q, so no token is issued: %s",
					key.Signer(), key.ID(), reason))
			},
			Back: func(key *signing.PrivateKey) {
				p.Recorder.Normal(p.Process, "SigningKeyBack", fmt.Sprintf("%s signs again with key %q", key.Signer(), key.ID()))
			},
			Unpinned: func(key *signing.PrivateKey, ids []string) {
				p.Recorder.Warn(p.Process, "UnpinnedKey", fmt.Sprintf("%s lists keys that the key ring does not have (%s): "+
					"tokens that it signs with them are refused, so rotate to them first", key.Signer(), strings.Join(ids, ", ")))
			},
		})
		return nil
	}
	p.Check = func() (string, error) { return e.signers.Status(p.Keyring.Ring()), nil }
	return nil
}

// buildRing shows the ring in use, publishes it for the other replicas, and lets no key sign that
// theirs forbid.
func (e *extras) buildRing(p *app.Part) error {
	if p.Keyring == nil || e.signers == nil {
		return nil
	}
	host, err := hosts.HostName()
	if err != nil {
		return err
	}
	writer, _ := os.Hostname() // HostName has it
	config := hosts.Config{
		Client:    p.Client,
		Read:      e.store.Read,
		State:     e.store.State,
		SignsWith: func() string { return p.Keyring.Ring().ActiveID() },
		Away: func(key ring.Key) (reason string, lasted time.Duration) {
			switch {
			case key.Private == nil:
				return "this host has its public half alone", 0
			case key.Signer == "":
				return "", 0
			}
			return e.signers.Away(key.Private)
		},
		Apply:    e.store.Apply,
		Host:     host,
		Writer:   writer,
		Signer:   p.Options.ExternalSigner.Socket != "",
		Recorder: p.Recorder,
		Process:  p.Process,
		Metrics:  hosts.NewMetrics(p.Registry.MustRegister),
		Loops:    p.Loops,
	}
	if e.publisher != nil {
		config.Shown = e.publisher.Shows
		e.publisher.Passed.Subscribe(func(relying.Directory) { e.hosts.RingChanged() })
	}
	e.hosts = hosts.New(config)
	e.signers.Changed.Subscribe(func(*signing.PrivateKey) {
		e.hosts.RingChanged()
		p.Probe.Reconnected() // kube-apiserver is asked again immediately
	})
	p.Signs.Add(e.hosts.MaySign)
	p.Fills.Add(e.hosts.MayFill)
	e.registerRingMetrics(p.Registry)
	show := func(*signing.Ring) {
		state := e.store.State()
		p.Logger.Info("Took the keys of the ring", "generation", state.Generation, "signs", state.Active().ID, "status",
			e.store.Status().Detail)
	}
	show(nil)
	p.Keyring.Changed.Subscribe(show)
	p.Keyring.Changed.Subscribe(func(*signing.Ring) { e.hosts.RingChanged() })
	p.Run, p.Findings = e.hosts.Run, e.hosts.Findings
	return nil
}

func (e *extras) registerRingMetrics(registry metrics.KubeRegistry) {
	series.GaugeFunc(registry, "sacm_key_ring_generation", "Generation of the key ring file that is in use.",
		func() float64 { return float64(e.store.State().Generation) })
	series.GaugeFunc(registry, "sacm_signing_key_activated_timestamp_seconds",
		"When the active key of the key ring file became active, in seconds since 1970.",
		func() float64 { return float64(e.store.State().Active().ActivatedAt.Unix()) })
	series.GaugeFunc(registry, "sacm_key_ring_next_key", "1 if the key ring file has a next key, so that it can be rotated, else 0.",
		func() float64 {
			_, ok := e.store.State().Next()
			return series.Bool(ok)
		})
}

// buildRetired watches, on the leader, what still signs with a retired key.
func (e *extras) buildRetired(p *app.Part) error {
	if e.hosts == nil {
		return nil
	}
	p.Run = func(ctx context.Context) error {
		hosts.Watch(ctx, p.Client, e.store.State)
		return nil
	}
	return nil
}

// buildReissue builds the controller that re-issues token Secrets after a rotation.
func (e *extras) buildReissue(p *app.Part) error {
	o := p.Options
	if e.hosts == nil || !p.SignsLegacyTokens() {
		return nil
	}
	off := o.Reissue.TokenSecrets == options.ReissueOff
	if off {
		p.Logger.Info("Not re-issuing token Secrets after a rotation because of --reissue-token-secrets=off")
	}
	reissuer := reissue.New(reissue.Config{
		Client:     p.Client,
		Informers:  p.Informers,
		Ring:       p.Keyring,
		MayReissue: e.hosts.MayReissue,
		Confirmed:  p.Probe.Confirmed,
		Recorder:   p.Recorder,
		Metrics:    reissue.NewMetrics(p.Registry.MustRegister),
		Loops:      p.Loops,
		Off:        off,
		Auto:       o.Tokens.TokenSecrets == options.TokenSecretsAuto,
	})
	e.hosts.Compared.Subscribe(func(*hosts.Standing) { reissuer.QueueSurvey() })
	p.Probe.Proven.Subscribe(func(string) { reissuer.QueueSurvey() })
	p.Run = reissuer.Run
	return nil
}

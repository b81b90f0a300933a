// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/cmd/sa-controller-manager/app/options/secureport"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/internal/series"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/reload"
)

// files are the key and certificate files that the process watches. A field is nil if its flag is
// not set.
type files struct {
	keys       options.KeyStore
	store      signing.Store // of keys
	verifyKeys []*reload.File[verifyKeys]
	rootCA     *reload.File[*rootca.Bundle]
	followed   []followed

	// Changes of a file are reported to these.
	recorder *events.Recorder
	process  *corev1.ObjectReference
	reloads  *metrics.CounterVec
}

// followed is a file, or a key store, that is followed until the process stops.
type followed struct {
	flag    string
	refused func() error // why its current content is not in use
	run     func(ctx context.Context)
}

// open reads the files with keys once, but for the store that an extra has opened. An invalid file is a
// start-up error that names its flag.
func (f *files) open(o *options.Keys) (err error) {
	if f.store == nil && o.PrivateKeyFile != "" {
		if f.store, err = reload.OpenKeyFile(o.PrivateKeyFile, reload.Options{}); err != nil {
			return fmt.Errorf("--%s: %w", options.PrivateKeyFileFlag, err)
		}
	}
	for _, path := range o.VerifyKeyFiles {
		keys, err := open("service-account-key-file", path, parseVerifyKeys)
		if err != nil {
			return err
		}
		f.verifyKeys = append(f.verifyKeys, keys)
	}
	return nil
}

// openRootCA returns the initial root CA, nil if there is none. As in KCM, it is the CA of the
// kubeconfig unless a flag names another one. Unlike KCM, it reads a CA that the kubeconfig names by
// path, too.
func (f *files) openRootCA(o *options.Keys, config *rest.Config) (*rootca.Bundle, error) {
	var err error
	switch {
	case o.RootCAFile != "":
		f.rootCA, err = open("root-ca-file", o.RootCAFile, rootca.ParseBundle)
	case len(config.CAData) > 0:
		bundle, err := rootca.ParseBundle(config.CAData)
		if err != nil {
			return nil, fmt.Errorf("certificate-authority-data of the kubeconfig: %w", err)
		}
		return bundle, nil
	case config.CAFile != "":
		if f.rootCA, err = reload.Open(config.CAFile, rootca.ParseBundle, reload.Options{}); err != nil {
			err = fmt.Errorf("certificate-authority of the kubeconfig: %w", err)
		}
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return f.rootCA.Get(), nil
}

func open[T any](flag, path string, parse func([]byte) (T, error)) (*reload.File[T], error) {
	file, err := reload.Open(path, parse, reload.Options{})
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return file, nil
}

// warnLooseKeys logs files with private keys that every user of the machine can access. Access of a
// group may be on purpose, as with fsGroup of a Pod.
func warnLooseKeys(logger klog.Logger, o *options.Options) {
	store := o.Keys.Store()
	for _, key := range []struct{ flag, path string }{
		{store.Flag, store.Path}, {"tls-private-key-file", secureport.Of(o).Serving.ServerCert.CertKey.KeyFile},
		{"webhook-tls-private-key-file", o.Webhook.KeyFile},
	} {
		info, err := os.Stat(key.path)
		if err != nil || info.Mode().Perm()&0o007 == 0 {
			continue // opening it reports the error
		}
		logger.Info("Private key file is accessible to other users, restrict it with chmod o= or a defaultMode of 0440",
			"flag", "--"+key.flag, "file", key.path, "mode", info.Mode().Perm().String())
	}
}

// publicKeys returns the keys of the verification key files.
func (f *files) publicKeys() []signing.PublicKey {
	var keys []signing.PublicKey
	for _, file := range f.verifyKeys {
		keys = append(keys, file.Get().keys...)
	}
	return keys
}

func (m *Manager) buildFiles(p *Part) error {
	f := m.files
	f.recorder, f.process, f.reloads = m.Recorder, m.Process, newReloads(m.Registry.MustRegister)
	f.followAll(m.Keyring, m.newRootCA)
	for _, gauge := range f.refusedGauges() {
		m.Registry.RawMustRegister(gauge)
	}
	p.Run = f.watch
	return nil
}

// followAll adds the files of the core. Without a ring nothing signs, and nothing is verified either.
func (f *files) followAll(ring *signing.Keyring, newRootCA func(*rootca.Bundle)) {
	if f.store != nil {
		refused := func() error { return f.store.Status().Refused }
		f.followed = append(f.followed, followed{f.keys.Flag, refused, func(ctx context.Context) {
			follow(ctx, f, f.keys.Flag, f.keys.Path, f.store, func(stored *signing.Ring) {
				if ring != nil {
					ring.Set(stored)
				}
			})
		}})
	}
	var collecting sync.Mutex // so that no change is lost if two files change at the same time
	for _, file := range f.verifyKeys {
		f.followed = append(f.followed, followed{"service-account-key-file", file.Refused, func(ctx context.Context) {
			if ring == nil {
				return
			}
			logSkippedKeys(ctx, file.Path(), file.Get())
			follow(ctx, f, "service-account-key-file", file.Path(), file, func(changed verifyKeys) {
				logSkippedKeys(ctx, file.Path(), changed)
				collecting.Lock()
				defer collecting.Unlock()
				ring.SetVerifyOnly(f.publicKeys())
			})
		}})
	}
	if f.rootCA != nil {
		addFile(f, "root-ca-file", f.rootCA, newRootCA)
	}
}

func addFile[T any](f *files, flag string, file *reload.File[T], accepted func(T)) {
	f.followed = append(f.followed, followed{flag, file.Refused, func(ctx context.Context) {
		follow(ctx, f, flag, file.Path(), file, accepted)
	}})
}

// Follow opens the file of a flag and has it followed while the process runs.
func Follow[T any](h Host, flag, path string, parse func([]byte) (T, error)) (*reload.File[T], error) {
	file, err := open(flag, path, parse)
	if err == nil {
		addFile(h.files, flag, file, func(T) {})
	}
	return file, err
}

// watch follows every file until ctx ends.
func (f *files) watch(ctx context.Context) error {
	var watching sync.WaitGroup
	for _, file := range f.followed {
		watching.Go(func() { file.run(ctx) })
	}
	watching.Wait()
	return nil
}

// watched is a file or a key store that is followed.
type watched[T any] interface {
	Watch(ctx context.Context, accepted func(T), refused func(error))
}

func follow[T any](ctx context.Context, f *files, flag, path string, content watched[T], accepted func(T)) {
	logger := klog.FromContext(ctx).WithValues("flag", "--"+flag, "file", path)
	content.Watch(ctx, func(value T) {
		f.reloads.WithLabelValues(flag, "accepted").Inc()
		logger.Info("Reloaded file")
		accepted(value)
	}, func(err error) {
		f.reloads.WithLabelValues(flag, "refused").Inc()
		logger.Error(err, "Failed to reload file, keeping its previous content")
		f.recorder.Warn(f.process, "FileReloadRefused", fmt.Sprintf("--%s: %v; the previous content stays in use", flag, err))
	})
}

func newReloads(mustRegister func(...metrics.Registerable)) *metrics.CounterVec {
	return series.CounterVec(mustRegister, "sacm_file_reloads_total",
		"Number of reloads of a changed file, by flag and result: accepted, or refused if its previous content stays in use.",
		"flag", "result")
}

// verifyKeys is the content of a verification key file.
type verifyKeys struct {
	keys []signing.PublicKey
	// unusable is the error of a key that was skipped, nil if none was.
	unusable error
}

// parseVerifyKeys takes both from one read, because the file may change at any time.
func parseVerifyKeys(data []byte) (verifyKeys, error) {
	keys, err := signing.ParsePublicKeys(data)
	return verifyKeys{keys: keys, unusable: signing.UnusableKey(data)}, err
}

// logSkippedKeys logs a key that is not supported here. kube-apiserver may verify with it, but
// does not get it from us.
func logSkippedKeys(ctx context.Context, path string, found verifyKeys) {
	if found.unusable != nil {
		klog.FromContext(ctx).Info("Skipped an unsupported verification key", "file", path, "cause", found.unusable.Error())
	}
}

// refusedGauges count the files of each flag whose current content was refused. The counters of
// newReloads cannot show the end of that: restoring the content in use is no reload.
func (f *files) refusedGauges() []metrics.GaugeFunc {
	byFlag := map[string][]followed{}
	for _, file := range f.followed {
		byFlag[file.flag] = append(byFlag[file.flag], file)
	}
	var gauges []metrics.GaugeFunc
	for flag, files := range byFlag {
		gauges = append(gauges, metrics.NewGaugeFunc(&metrics.GaugeOpts{
			Name:        "sacm_file_refused",
			Help:        "Number of files whose current content was refused, so that a previous one stays in use, by flag.",
			ConstLabels: map[string]string{"flag": flag},
		}, func() float64 {
			count := 0
			for _, file := range files {
				if file.refused() != nil {
					count++
				}
			}
			return float64(count)
		}))
	}
	return gauges
}

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

	"sa-controller-manager/cmd/sa-controller-manager/app/keystore"
	"sa-controller-manager/cmd/sa-controller-manager/app/options"
	"sa-controller-manager/controllers/rootca"
	"sa-controller-manager/internal/events"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/reload"
)

// files are the key and certificate files that are followed while we run. A field
// is nil if its flag is not given.
type files struct {
	keys       options.KeyStore
	store      signing.Store // of keys
	verifyKeys []*reload.File[verifyKeys]
	rootCA     *reload.File[*rootca.Bundle]

	// What a changed file is reported to.
	recorder *events.Recorder
	process  *corev1.ObjectReference
	metrics  *fileMetrics
}

// openFiles reads the files with keys once; whatever is wrong with one is a start-up error
// that names its flag.
func openFiles(o *options.Keys) (*files, error) {
	f := &files{keys: o.Store()}
	var err error
	if f.store, err = keystore.Open(f.keys); err != nil {
		return nil, err
	}
	for _, path := range o.VerifyKeyFiles {
		keys, err := open("service-account-key-file", path, parseVerifyKeys)
		if err != nil {
			return nil, err
		}
		f.verifyKeys = append(f.verifyKeys, keys)
	}
	return f, nil
}

// openRootCA returns the root CA to begin with, nil if there is none. As in KCM, the CA that we
// trust ourselves is what others are to trust, unless a flag says otherwise. Upstream forgets the
// CA that is given by path.
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

// warnLooseKeys names files with private keys that every user of the machine may read. A group may
// read them on purpose, as that of a Pod.
func warnLooseKeys(logger klog.Logger, o *options.Options) {
	store := o.Keys.Store()
	for _, key := range []struct{ flag, path string }{
		{store.Flag, store.Path}, {"tls-private-key-file", o.SecureServing.TLS.KeyFile}, {"webhook-tls-private-key-file", o.Webhook.KeyFile},
	} {
		info, err := os.Stat(key.path)
		if err != nil || info.Mode().Perm()&0o007 == 0 {
			continue // who opens it says what is wrong
		}
		logger.Info("Others may read or write a file with a private key, take that from them: chmod o= FILE, or a defaultMode of 0440 for the Secret",
			"flag", "--"+key.flag, "file", key.path, "mode", info.Mode().Perm().String())
	}
}

func (f *files) publicKeys() []signing.PublicKey {
	var keys []signing.PublicKey
	for _, file := range f.verifyKeys {
		keys = append(keys, file.Get().keys...)
	}
	return keys
}

// watch follows every file until ctx ends. ring is nil when nothing signs; then
// nothing is verified either.
func (f *files) watch(ctx context.Context, newRing func(*signing.Ring), ring *signing.Keyring, newRootCA func(*rootca.Bundle)) {
	var watching sync.WaitGroup
	defer watching.Wait()
	if f.store != nil {
		watching.Go(func() { follow(ctx, f, f.keys.Flag, f.keys.Path, f.store, newRing) })
	}
	var collecting sync.Mutex // or of two files that change at once one would be lost
	for _, file := range f.verifyKeys {
		if ring == nil {
			break
		}
		watching.Go(func() {
			logSkippedKeys(ctx, file.Path(), file.Get())
			follow(ctx, f, "service-account-key-file", file.Path(), file, func(changed verifyKeys) {
				logSkippedKeys(ctx, file.Path(), changed)
				collecting.Lock()
				defer collecting.Unlock()
				ring.SetVerifyOnly(f.publicKeys())
			})
		})
	}
	if f.rootCA != nil {
		watching.Go(func() { follow(ctx, f, "root-ca-file", f.rootCA.Path(), f.rootCA, newRootCA) })
	}
}

// watched is what changes: a file, or a key store.
type watched[T any] interface {
	Watch(ctx context.Context, accepted func(T), refused func(error))
}

func follow[T any](ctx context.Context, f *files, flag, path string, content watched[T], accepted func(T)) {
	logger := klog.FromContext(ctx).WithValues("flag", "--"+flag, "file", path)
	content.Watch(ctx, func(value T) {
		f.metrics.reloads.WithLabelValues(flag, "accepted").Inc()
		logger.Info("Read the changed file")
		accepted(value)
	}, func(err error) {
		f.metrics.reloads.WithLabelValues(flag, "refused").Inc()
		logger.Error(err, "Refused the changed file, its former content stays in use")
		f.recorder.Warn(f.process, "FileReloadRefused", "Reload",
			fmt.Sprintf("--%s: %v; the former content stays in use", flag, err))
	})
}

type fileMetrics struct {
	reloads *metrics.CounterVec
}

func newFileMetrics(mustRegister func(...metrics.Registerable)) *fileMetrics {
	m := &fileMetrics{reloads: metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "sacm_file_reloads_total",
		Help: "Changed contents of a watched file, by flag and result: accepted, or refused if the former content stays in use.",
	}, []string{"flag", "result"})}
	mustRegister(m.reloads)
	return m
}

// verifyKeys are what a verification key file holds.
type verifyKeys struct {
	keys []signing.PublicKey
	// unusable is what is wrong with a key that is passed over, nil if none is.
	unusable error
}

// parseVerifyKeys takes both from one reading: a file may change at any time.
func parseVerifyKeys(data []byte) (verifyKeys, error) {
	keys, err := signing.ParsePublicKeys(data)
	if err != nil {
		return verifyKeys{}, err
	}
	return verifyKeys{keys: keys, unusable: signing.UnusableKey(data)}, nil
}

// logSkippedKeys says which key of a file is passed over. kube-apiserver may verify with it,
// and does not learn of it from us.
func logSkippedKeys(ctx context.Context, path string, found verifyKeys) {
	if found.unusable != nil {
		klog.FromContext(ctx).Info("Passed over a verification key that is not accepted here", "file", path, "cause", found.unusable.Error())
	}
}

// refusedGauges say of each flag how many of its files hold at this moment what was
// refused. The counters of fileMetrics cannot say that it is over: that the content in use
// came back is no reload.
func (f *files) refusedGauges() []metrics.GaugeFunc {
	var gauges []metrics.GaugeFunc
	add := func(flag string, refusals ...func() error) {
		gauges = append(gauges, metrics.NewGaugeFunc(&metrics.GaugeOpts{
			Name:        "sacm_file_refused",
			Help:        "Files of a flag whose content was refused, so that a former one is in use.",
			ConstLabels: map[string]string{"flag": flag},
		}, func() float64 { return float64(countErrors(refusals)) }))
	}
	if f.store != nil {
		add(f.keys.Flag, func() error { return f.store.Status().Refused })
	}
	if len(f.verifyKeys) > 0 {
		var refusals []func() error
		for _, file := range f.verifyKeys {
			refusals = append(refusals, file.Refused)
		}
		add("service-account-key-file", refusals...)
	}
	if f.rootCA != nil {
		add("root-ca-file", f.rootCA.Refused)
	}
	return gauges
}

func countErrors(of []func() error) int {
	count := 0
	for _, err := range of {
		if err() != nil {
			count++
		}
	}
	return count
}

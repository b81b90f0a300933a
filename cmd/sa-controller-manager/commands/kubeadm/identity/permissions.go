// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/x509/pkix"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"sa-controller-manager/internal/meta"
	"sa-controller-manager/manifests"
)

const (
	// mastersLifetime is how long the certificate is good that the permissions are
	// applied with.
	mastersLifetime = 10 * time.Minute

	// tryInterval is short, because this is what the first start of a cluster waits for.
	tryInterval = 250 * time.Millisecond
	tryTimeout  = 10 * time.Second
)

// applyPermissions is tried until the API server has taken all of it.
func (c Config) applyPermissions(ctx context.Context, ca *authority, to endpoint) error {
	objects, err := manifests.Permissions()
	if err != nil {
		return err
	}
	client, err := c.masters(ca, to)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Timeout, fmt.Errorf("not within %s", c.Timeout))
	defer cancel()
	begun := c.Clock.Now()
	for _, object := range objects {
		if err := c.applyOne(ctx, client, object, begun); err != nil {
			return fmt.Errorf("apply %s at %s: %w", object, to.server, err)
		}
	}
	fmt.Fprintf(c.Say, "%d permissions of %s are applied at %s.\n", len(objects), manifests.User, to.server)
	return nil
}

// masters is a client that may grant anything, for a few minutes.
func (c Config) masters(ca *authority, to endpoint) (rest.Interface, error) {
	if err := c.openKey(ca, to); err != nil {
		return nil, err
	}
	name := pkix.Name{CommonName: "sa-controller-manager-permissions", Organization: []string{"system:masters"}}
	pair, err := ca.issue(name, c.Clock.Now(), mastersLifetime)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host:            to.server,
		TLSClientConfig: rest.TLSClientConfig{CAData: to.ca, CertData: pair.cert, KeyData: pair.key},
		QPS:             -1,
		UserAgent:       meta.FieldManager,
		Timeout:         tryTimeout,
		WarningHandler:  rest.NoWarnings{},
	})
	if err != nil {
		return nil, fmt.Errorf("build the API client: %w", err)
	}
	return client.CoreV1().RESTClient(), nil
}

// applyOne repeats what may be for want of an API server, of its start's end or of the
// namespace kube-system, which it makes after that.
func (c Config) applyOne(ctx context.Context, client rest.Interface, object manifests.Object, begun time.Time) error {
	path, err := object.Path()
	if err != nil {
		return err
	}
	var last error // the one of the end says nothing
	for {
		err := client.Patch(types.ApplyYAMLPatchType).AbsPath(path).
			Param("fieldManager", meta.FieldManager).Param("force", "true").
			MaxRetries(0).Body(object.YAML).Do(ctx).Error()
		if err == nil || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			return err
		}
		if ctx.Err() == nil {
			last = err
		}
		if c.Progress != nil {
			c.Progress(fmt.Sprintf("Waiting for the API server, %s: %v", c.Clock.Since(begun).Round(time.Second), err))
		}
		timer := c.Clock.NewTimer(tryInterval)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w; the last answer: %w", context.Cause(ctx), last)
		}
	}
}

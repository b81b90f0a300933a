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

	"sa-controller-manager/cmd/sa-controller-manager/commands/cli"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/manifests"
)

const (
	// mastersLifetime is how long the certificate is good that the permissions are
	// applied with.
	mastersLifetime = 10 * time.Minute

	tryTimeout = 10 * time.Second
)

// Apply applies the permissions of our user, all of them, once.
func Apply(ctx context.Context, client rest.Interface) error {
	objects, err := manifests.Permissions()
	if err != nil {
		return err
	}
	for _, object := range objects {
		err := client.Patch(types.ApplyYAMLPatchType).AbsPath(object.Path()).
			Param("fieldManager", meta.FieldManager).Param("force", "true").
			MaxRetries(0).Body(object.YAML).Do(ctx).Error()
		if err != nil {
			return fmt.Errorf("apply %s: %w", object, err)
		}
	}
	return nil
}

// applyPermissions repeats what may be for want of an API server, of its start's end or of
// the namespace kube-system, which it makes after that.
func (c Config) applyPermissions(ctx context.Context, ca *authority, to endpoint) error {
	client, err := c.masters(ca, to)
	if err != nil {
		return err
	}
	err = cli.Await{Clock: c.Clock, Timeout: c.Timeout, Progress: c.Progress}.Until(ctx, func(ctx context.Context) error {
		err := Apply(ctx, client)
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			return cli.Permanent(err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("at %s: %w", to.server, err)
	}
	fmt.Fprintf(c.Say, "The permissions of %s are applied at %s.\n", manifests.User, to.server)
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

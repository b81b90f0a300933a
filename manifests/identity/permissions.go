// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"sa-controller-manager/internal/meta"
	"sa-controller-manager/manifests"
)

const (
	// mastersLifetime is how long the certificate is valid that applies the permissions.
	mastersLifetime = 10 * time.Minute

	// requestTimeout bounds one request.
	requestTimeout = 10 * time.Second
)

// Apply grants our user the permissions that it lacks. As kube-apiserver does with its own roles, it adds
// rules to a role and removes none, and leaves a role with upstream's annotation alone: several versions
// may run side by side, and the operator's rules stay. Existing bindings and FlowSchemas are not changed.
//
// It reports whether anything was missing.
func Apply(ctx context.Context, client rest.Interface, createSecrets, onlySigner bool) (changed bool, err error) {
	objects, err := manifests.Permissions(createSecrets, onlySigner)
	if err != nil {
		return false, err
	}
	return ApplyObjects(ctx, client, objects)
}

// ApplyObjects is Apply for some objects.
func ApplyObjects(ctx context.Context, client rest.Interface, objects []manifests.Object) (changed bool, err error) {
	var all []error
	for _, object := range objects {
		wrote, err := apply(ctx, client, object)
		changed = changed || wrote
		if err != nil {
			all = append(all, fmt.Errorf("apply %s: %w", object, err))
		}
		if err != nil && (!errors.As(err, new(apierrors.APIStatus)) || apierrors.IsTooManyRequests(err)) {
			break // the next one would get no other answer
		}
	}
	return changed, errors.Join(all...)
}

func apply(ctx context.Context, client rest.Interface, object manifests.Object) (wrote bool, err error) {
	err = client.Post().AbsPath(path.Dir(object.Path())).Param("fieldManager", meta.FieldManager).
		SetHeader("Content-Type", "application/yaml").MaxRetries(0).Body(object.YAML).Do(ctx).Error()
	if !apierrors.IsAlreadyExists(err) {
		return err == nil, err
	}
	if object.Kind != "Role" && object.Kind != "ClusterRole" {
		return false, nil
	}
	err = meta.RetryWrite(apierrors.IsConflict, func() error {
		data, err := client.Get().AbsPath(object.Path()).SetHeader("Accept", runtime.ContentTypeJSON).MaxRetries(0).Do(ctx).Raw()
		if err != nil {
			return err
		}
		change, err := missing(data, object.YAML)
		if err != nil || change == nil {
			return err
		}
		wrote = true
		return client.Patch(types.MergePatchType).AbsPath(object.Path()).Param("fieldManager", meta.FieldManager).
			MaxRetries(0).Body(change).Do(ctx).Error()
	})
	return wrote, err
}

// missing returns the merge patch that adds the rules of wanted to an existing role, nil if it has them.
func missing(existing, wanted []byte) ([]byte, error) {
	var is, want rbacv1.ClusterRole // a Role has the same fields
	if err := errors.Join(yaml.Unmarshal(existing, &is), yaml.Unmarshal(wanted, &want)); err != nil {
		return nil, err
	}
	if is.Annotations[rbacv1.AutoUpdateAnnotationKey] == "false" {
		return nil, nil
	}
	rules := slices.Clone(is.Rules)
	for _, rule := range want.Rules {
		if !slices.ContainsFunc(rules, func(has rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(has, rule) }) {
			rules = append(rules, rule)
		}
	}
	if len(rules) == len(is.Rules) {
		return nil, nil
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": is.ResourceVersion},
		"rules":    rules,
	})
}

func (c Config) applyPermissions(ctx context.Context, ca *authority, to *clientcmdapi.Cluster) error {
	client, err := masters(ca, to)
	if errors.Is(err, ErrNoKey) {
		fmt.Fprintf(c.Say, "Warning: the permissions were not applied: %v; "+
			"an administrator can apply them with \"kubectl apply -k manifests/permissions\".\n", err)
		return nil
	} else if err != nil {
		return err
	}
	changed, err := Apply(ctx, client, c.CreateSecrets, c.OnlySigner)
	if err != nil {
		return fmt.Errorf("at %s: %w", to.Server, err)
	}
	has := "has its permissions"
	if changed {
		has = "lacked permissions, and has them now"
	}
	fmt.Fprintf(c.Say, "%s %s at %s.\n", manifests.User, has, to.Server)
	return nil
}

// masters returns a client of a member of system:masters, for a few minutes.
func masters(ca *authority, to *clientcmdapi.Cluster) (rest.Interface, error) {
	name := pkix.Name{CommonName: "sa-controller-manager-permissions", Organization: []string{"system:masters"}}
	pair, err := ca.issue(name, mastersLifetime)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host:            to.Server,
		TLSClientConfig: rest.TLSClientConfig{CAData: to.CertificateAuthorityData, CertData: pair, KeyData: pair},
		QPS:             -1,
		UserAgent:       meta.FieldManager,
		Timeout:         requestTimeout,
		WarningHandler:  rest.NoWarnings{},
	})
	if err != nil {
		return nil, fmt.Errorf("build the API client: %w", err)
	}
	return client.CoreV1().RESTClient(), nil
}

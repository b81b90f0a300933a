// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

// LiveHosts asks the API on which hosts a kube-apiserver runs that has an identity Lease.
func LiveHosts(ctx context.Context, client kubernetes.Interface, now time.Time) ([]string, error) {
	var options metav1.ListOptions
	selectIdentities(&options)
	list, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("list the identity Leases of kube-apiserver: %w", err)
	}
	leases := make([]*coordinationv1.Lease, len(list.Items))
	for i := range list.Items {
		leases[i] = &list.Items[i]
	}
	return liveHosts(leases, now), nil
}

// HostsWithoutReplica asks the API on which hosts a kube-apiserver has nobody to call. It
// is empty where that does not matter, and where nobody has called the roll. A replica that
// has answered and is gone is not noticed. Where one is missing it takes 2 s, because the
// roll may have been called just now.
func HostsWithoutReplica(ctx context.Context, client kubernetes.Interface, clk clock.Clock) ([]string, error) {
	missing, err := unanswered(ctx, client, clk.Now())
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-clk.After(answerTime):
		return unanswered(ctx, client, clk.Now())
	}
}

func unanswered(ctx context.Context, client kubernetes.Interface, now time.Time) ([]string, error) {
	o, err := get(ctx, client, mutating)
	if err != nil {
		return nil, fmt.Errorf("read the %s %s: %w", mutating, Name, err)
	}
	if !slices.ContainsFunc(o.found().entries, perHost) {
		return nil, nil
	}
	hosts, err := LiveHosts(ctx, client, now)
	if err != nil || len(hosts) < 2 {
		return nil, err
	}
	found, err := client.CoreV1().ConfigMaps(RollCallNamespace).Get(ctx, RollCallName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read configmap %s/%s: %w", RollCallNamespace, RollCallName, err)
	}
	call := readRollCall(found)
	if call.foreign != "" {
		return nil, fmt.Errorf("read configmap %s/%s: unknown schema-version %s", RollCallNamespace, RollCallName, call.foreign)
	}
	return slices.DeleteFunc(hosts, func(host string) bool { return call.answered(host, call.round) }), nil
}

// perHost is Spec.PerHost of what is registered.
func perHost(e entry) bool {
	if e.ClientConfig.URL == nil {
		return false
	}
	u, err := url.Parse(*e.ClientConfig.URL)
	return err == nil && Spec{Mode: URL, Host: u.Hostname()}.PerHost()
}

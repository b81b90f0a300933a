// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/internal/stateobject"
)

// The hosts object is the ConfigMap in which each replica has a line.
const (
	HostsNamespace = metav1.NamespaceSystem
	HostsName      = "sa-controller-manager-hosts"

	// hostsObject is what errors call it.
	hostsObject = "configmap " + HostsNamespace + "/" + HostsName

	// hostPrefix begins the key of a line; the name of the host follows.
	hostPrefix = "host."
)

const (
	// heartbeatInterval is as long as that in which kube-apiserver renews its identity Lease.
	heartbeatInterval = 10 * time.Second

	// unreadyDelay is how soon a replica that is not ready looks at itself again.
	unreadyDelay = time.Second

	heartbeatQueue = "webhook_host_heartbeat"
)

// line is what the replica on a host says of itself, as JSON.
type line struct {
	// Endpoint is what kube-apiserver on that host has to call.
	Endpoint string `json:"endpoint"`
	// Counter is another one with each heartbeat.
	Counter int64 `json:"counter"`
}

// readLine takes a damaged line for that of a replica which serves nothing. Its host writes
// over it with the next heartbeat.
func readLine(encoded string) line {
	var l line
	if json.Unmarshal([]byte(encoded), &l) != nil {
		return line{}
	}
	return l
}

// readHosts is what the hosts object holds by host, and whether its version is damaged. The
// object may be nil; one of another version is an error, and so is one that takes no heartbeat.
func readHosts(object *corev1.ConfigMap) (lines map[string]string, damaged bool, err error) {
	if object == nil {
		return nil, false, nil
	}
	fields, err := stateobject.Read(object.Data)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", hostsObject, err)
	}
	if object.Immutable != nil && *object.Immutable {
		return nil, false, fmt.Errorf("%s is immutable and takes no heartbeat: delete it, it is created again at once", hostsObject)
	}
	lines = map[string]string{}
	for _, host := range fields.Between(hostPrefix, "") {
		lines[host] = fields.Get(hostPrefix + host)
	}
	return lines, fields.Damage() != "", nil
}

// HostReporterConfig says what a HostReporter needs. Loops and Clock may be nil.
type HostReporterConfig struct {
	Client kubernetes.Interface
	// Host is the name of this host, as kube-apiserver on it would write it into its
	// identity Lease.
	Host string
	// Endpoint is what kube-apiserver on this host has to call (Spec.Endpoint).
	Endpoint string
	// Ready is nil once calls can be answered.
	Ready func() error
	Loops *reconcile.Metrics
	Clock clock.WithTicker
}

// HostReporter keeps the heartbeat of this host while its replica is ready and kube-apiserver
// runs on several hosts. Every replica runs one. A replica that has stopped leaves its line,
// which ages.
type HostReporter struct {
	config        HostReporterConfig
	leases, hosts cache.SharedIndexInformer
	loop          *reconcile.Runner[string]

	// Only sync uses what follows.
	counter int64
	renewed time.Time
}

// NewHostReporter returns a HostReporter that knows nothing until Run has begun.
func NewHostReporter(config HostReporterConfig) *HostReporter {
	if config.Clock == nil {
		config.Clock = clock.RealClock{}
	}
	h := &HostReporter{
		config: config,
		leases: newIdentityInformer(config.Client),
		hosts: corev1informers.NewFilteredConfigMapInformer(
			config.Client, HostsNamespace, 0, cache.Indexers{}, reconcile.OnlyNamed(HostsName)),
	}
	h.loop = reconcile.New(reconcile.Config[string]{
		Name: heartbeatQueue, Workers: 1, Sync: h.sync, Metrics: config.Loops, Clock: config.Clock,
	})
	return h
}

// Run works until ctx ends. It is called once.
func (h *HostReporter) Run(ctx context.Context) error {
	return h.loop.RunWatching(ctx, HostsName,
		reconcile.Watch{Informer: h.leases}, reconcile.Watch{Informer: h.hosts})
}

// sync renews the line of this host if that is due. Where there is one host only it waits for
// the identity Lease of another one.
func (h *HostReporter) sync(ctx context.Context, key string) error {
	now := h.config.Clock.Now()
	if len(liveHosts(identities(h.leases.GetStore()), now)) < 2 {
		return nil
	}
	if left := h.renewed.Add(heartbeatInterval).Sub(now); left > 0 {
		h.loop.AddAfter(key, left)
		return nil
	}
	if err := h.config.Ready(); err != nil {
		klog.FromContext(ctx).V(4).Info("No heartbeat until this replica is ready", "reason", err.Error())
		h.loop.AddAfter(key, unreadyDelay)
		return nil
	}
	if err := h.renew(ctx); err != nil {
		return err
	}
	h.renewed = now
	h.loop.AddAfter(key, heartbeatInterval)
	return nil
}

// renew writes this host's line, and makes the object if there is none. The patch has no
// precondition: the line is this replica's own, so that no other write can be lost by it, and
// the lines of other hosts are not in it.
func (h *HostReporter) renew(ctx context.Context) error {
	object := h.object()
	lines, damaged, err := readHosts(object)
	if err != nil {
		return err
	}
	// Readers must see that a replica which has just started is there.
	h.counter = max(h.counter, readLine(lines[h.config.Host]).Counter) + 1
	encoded, err := json.Marshal(line{Endpoint: h.config.Endpoint, Counter: h.counter})
	if err != nil {
		return fmt.Errorf("encode the heartbeat of host %s: %w", h.config.Host, err)
	}
	data := map[string]string{hostPrefix + h.config.Host: string(encoded)}
	if object == nil || damaged {
		stateobject.Stamp(data)
	}
	if object == nil {
		err = h.create(ctx, data)
	} else {
		err = patchHosts(ctx, h.config.Client, map[string]any{"data": data})
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %w", reconcile.ErrStaleCache, err)
	}
	if err != nil {
		return fmt.Errorf("write the heartbeat of host %s into %s: %w", h.config.Host, hostsObject, err)
	}
	return nil
}

func (h *HostReporter) create(ctx context.Context, data map[string]string) error {
	configMaps := h.config.Client.CoreV1().ConfigMaps(HostsNamespace)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: HostsName}, Data: data}
	_, err := configMaps.Create(ctx, object, metav1.CreateOptions{FieldManager: meta.FieldManager})
	return err
}

// object is the hosts object as the watch has it, nil for none. It is not to be changed.
func (h *HostReporter) object() *corev1.ConfigMap {
	found, _, _ := h.hosts.GetStore().GetByKey(HostsNamespace + "/" + HostsName)
	object, _ := found.(*corev1.ConfigMap)
	return object
}

// synced reports whether it is known which hosts and which lines there are.
func (h *HostReporter) synced() bool { return h.leases.HasSynced() && h.hosts.HasSynced() }

func patchHosts(ctx context.Context, client kubernetes.Interface, patch map[string]any) error {
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	configMaps, options := client.CoreV1().ConfigMaps(HostsNamespace), metav1.PatchOptions{FieldManager: meta.FieldManager}
	_, err = configMaps.Patch(ctx, HostsName, types.MergePatchType, body, options)
	return err
}

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

	"sa-controller-manager/internal/apiservers"
	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/reconcile"
	"sa-controller-manager/internal/stateobject"
)

// The hosts object is the ConfigMap in which each replica has an entry.
const (
	HostsNamespace = metav1.NamespaceSystem
	HostsName      = "sa-controller-manager-hosts"

	// hostsObject names it in errors.
	hostsObject = "configmap " + HostsNamespace + "/" + HostsName

	// hostPrefix begins the key of an entry; the name of the host follows.
	hostPrefix = "host."
)

// heartbeatInterval is the same as kube-apiserver's for its identity Lease.
const heartbeatInterval = 10 * time.Second

// line is the entry of the replica on a host, as JSON.
type line struct {
	// Endpoint is the URL that kube-apiserver on that host has to call.
	Endpoint string `json:"endpoint"`
	// Counter changes with each heartbeat.
	Counter int64 `json:"counter"`
	// Static means that kube-apiserver on that host has loaded the files of mode static.
	Static bool `json:"static,omitempty"`
}

// readLine returns an empty line if it is damaged. The next heartbeat of its host overwrites it.
func readLine(encoded string) line {
	var l line
	if json.Unmarshal([]byte(encoded), &l) != nil {
		return line{}
	}
	return l
}

// readHosts returns the lines by host, and whether the version in the object is damaged. The object
// may be nil. An object of another version is an error, and so is an immutable one.
func readHosts(object *corev1.ConfigMap) (lines map[string]string, damaged bool, err error) {
	if object == nil {
		return nil, false, nil
	}
	fields, err := stateobject.Read(object.Data)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", hostsObject, err)
	}
	if object.Immutable != nil && *object.Immutable {
		return nil, false, fmt.Errorf("%s is immutable, which prevents heartbeats: delete it, it is created again at once", hostsObject)
	}
	lines = map[string]string{}
	for _, host := range fields.Between(hostPrefix, "") {
		lines[host] = fields.Get(hostPrefix + host)
	}
	return lines, fields.Damage() != "", nil
}

// HostReporterConfig configures a HostReporter. Loops and Clock may be nil.
type HostReporterConfig struct {
	Client kubernetes.Interface
	// Host is the name of this host, as in the identity Lease of the kube-apiserver on it.
	Host string
	// Endpoint is the URL that kube-apiserver on this host has to call (Spec.Endpoint).
	Endpoint string
	// Ready returns nil when the webhook can answer calls.
	Ready func() error
	// Static reports whether kube-apiserver on this host has loaded the files of mode static; nil in
	// another mode.
	Static func() bool
	Loops  *reconcile.Metrics
	Clock  clock.WithTicker
}

// HostReporter writes heartbeats for this host while its replica is ready and kube-apiserver runs
// on several hosts. Every replica runs one. A stopped replica leaves its line, which becomes stale.
type HostReporter struct {
	config        HostReporterConfig
	leases, hosts cache.SharedIndexInformer
	loop          *reconcile.Runner[string]

	// Only sync uses what follows.
	counter int64
	renewed time.Time
}

// NewHostReporter returns a HostReporter that does not run yet.
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
		Name: "webhook_host_heartbeat", Workers: 1, Sync: h.sync, Metrics: config.Loops, Clock: config.Clock,
	})
	return h
}

// Run runs until ctx ends. It must be called once.
func (h *HostReporter) Run(ctx context.Context) error {
	return h.loop.RunWatching(ctx, HostsName,
		reconcile.Watch{Informer: h.leases}, reconcile.Watch{Informer: h.hosts})
}

// sync renews the line of this host when it is due. With a single host it waits for the identity
// Lease of another one.
func (h *HostReporter) sync(ctx context.Context, key string) error {
	now := h.config.Clock.Now()
	if len(apiservers.Hosts(identities(h.leases.GetStore()), now)) < 2 {
		return nil
	}
	if left := h.renewed.Add(heartbeatInterval).Sub(now); left > 0 {
		h.loop.AddAfter(key, left)
		return nil
	}
	if err := h.config.Ready(); err != nil {
		klog.FromContext(ctx).V(4).Info("Skipped the heartbeat because this replica is not ready", "reason", err.Error())
		h.loop.AddAfter(key, time.Second)
		return nil
	}
	if err := h.renew(ctx); err != nil {
		return err
	}
	h.renewed = now
	h.loop.AddAfter(key, heartbeatInterval)
	return nil
}

// renew writes this host's line, and creates the object if there is none. The patch has no
// precondition: no other process writes this line, and the patch contains no other.
func (h *HostReporter) renew(ctx context.Context) error {
	object := h.object()
	lines, damaged, err := readHosts(object)
	if err != nil {
		return err
	}
	// A replica that has just started must change the counter too.
	h.counter = max(h.counter, readLine(lines[h.config.Host]).Counter) + 1
	own := line{Endpoint: h.config.Endpoint, Counter: h.counter, Static: h.config.Static != nil && h.config.Static()}
	encoded, err := json.Marshal(own)
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

// object returns the hosts object from the watch, nil if there is none. It must not be changed.
func (h *HostReporter) object() *corev1.ConfigMap {
	found, _, _ := h.hosts.GetStore().GetByKey(HostsNamespace + "/" + HostsName)
	object, _ := found.(*corev1.ConfigMap)
	return object
}

// synced reports whether both informers have listed.
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

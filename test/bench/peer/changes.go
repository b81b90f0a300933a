// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sa-controller-manager/manifests"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/measure"
)

// unlimited are the flags of a program that limits no requests of its own.
var unlimited = []string{"--kube-api-qps=1e6", "--kube-api-burst=1000000"}

// tokenNamespaces is over how many namespaces the token Secrets are spread.
const tokenNamespaces = 100

// changes are namespaces and token Secrets, while the program runs: the slow key with the flags of every day, and the
// fast one where nothing else limits a program. The programs alternate: A B A B.
func (o *Options) changes(ctx context.Context) error {
	for range o.Sizes.Repetitions {
		for _, v := range []struct {
			name  string
			flags []string
			key   devcluster.KeyType
		}{{"default flags, RSA", nil, devcluster.RSA}, {"unlimited QPS, P-256", unlimited, devcluster.ECDSA}} {
			for _, program := range []string{kcm, ours} {
				o.statusf("changes, %s, %s", v.name, program)
				if err := onFresh(ctx, devcluster.Options{SigningKey: v.key}, func(ctx context.Context, w *world) error {
					r, err := o.start(ctx, w, program, v.flags...)
					if err != nil {
						return err
					}
					return o.fill(ctx, w, r, ", "+v.name)
				}); err != nil {
					return fmt.Errorf("%s, %s: %w", v.name, program, err)
				}
			}
		}
	}
	return nil
}

// fill has the program complete namespaces, then token Secrets, each of an account of its own. Without a variant nothing is measured.
func (o *Options) fill(ctx context.Context, w *world, r *running, variant string) error {
	var namespaces, accounts, secrets []string
	for i := range o.Sizes.Namespaces {
		namespaces = append(namespaces, accountOf(bench(i), "default"), rootCA(bench(i)))
	}
	for i := range o.Sizes.Secrets {
		namespace, name := o.place(i)
		accounts, secrets = append(accounts, accountOf(namespace, name)), append(secrets, filled(namespace, name))
	}
	scenario := func(of string) string {
		if variant == "" {
			return ""
		}
		return of + variant
	}
	if err := o.measured(ctx, w, r, scenario("namespaces"), namespaces, o.Sizes.Namespaces, func(ctx context.Context, i int) error {
		return w.makeNamespace(ctx, bench(i))
	}); err != nil {
		return err
	}
	if _, err := w.complete(ctx, r, accounts, o.Sizes.Secrets, func(ctx context.Context, i int) error {
		namespace, name := o.place(i)
		return w.makeAccount(ctx, namespace, name)
	}); err != nil {
		return err
	}
	return errors.Join(o.measured(ctx, w, r, scenario("token Secrets"), secrets, o.Sizes.Secrets, func(ctx context.Context, i int) error {
		namespace, name := o.place(i)
		return w.makeTokenSecret(ctx, namespace, name, name)
	}), w.accepted(ctx, o))
}

// place is the namespace and the name of a token Secret and of its account.
func (o *Options) place(i int) (namespace, name string) {
	return bench(i % min(tokenNamespaces, o.Sizes.Namespaces)), fmt.Sprintf("t-%06d", i)
}

// measured loads objects and measures what completing them costs. Without a scenario nothing is kept.
func (o *Options) measured(ctx context.Context, w *world, r *running, scenario string, names []string, size int,
	load func(ctx context.Context, i int) error) error {
	if err := sleep(ctx, between); err != nil {
		return err
	}
	before, err1 := r.cost(ctx)
	took, err2 := w.complete(ctx, r, names, size, load)
	err3 := sleep(ctx, time.Second) // Events are sent later
	after, err4 := r.cost(ctx)
	if err := errors.Join(err1, err2, err3, err4); err != nil || scenario == "" {
		return err
	}
	spent := after.since(before)
	o.statusf("%s, %s: %v", scenario, r.name, map[string]float64(spent.methods))
	o.add(scenario, "time, s", r.name, took.Seconds())
	o.add(scenario, "CPU, s", r.name, spent.cpu)
	o.add(scenario, "CPU of kube-apiserver, s", r.name, spent.apiServer)
	o.add(scenario, "requests for each", r.name, spent.methods.sum()/float64(size))
	return nil
}

// accepted has kube-apiserver review one of the tokens: what was measured otherwise is no measurement.
func (w *world) accepted(ctx context.Context, o *Options) error {
	namespace, name := o.place(0)
	secret, err := w.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	review, err := w.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: string(secret.Data[corev1.ServiceAccountTokenKey])},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if want := "system:serviceaccount:" + namespace + ":" + name; review.Status.User.Username != want {
		return fmt.Errorf("a token of %s is reviewed as one of %q: %s", want, review.Status.User.Username, review.Status.Error)
	}
	return nil
}

// failover ends the leading one of two replicas: how long it takes until the next token Secret is filled. How many Pods
// are refused meanwhile, TestServiceDrain counts. The standby of one repetition leads in the next.
func (o *Options) failover(ctx context.Context) error {
	return onFresh(ctx, devcluster.Options{}, func(ctx context.Context, w *world) error {
		for _, program := range []string{kcm, ours} {
			leader, err := o.replica(ctx, w, program)
			if err != nil {
				return err
			}
			if _, err := w.complete(ctx, leader, []string{accountOf(program, "default")}, 1, func(ctx context.Context, _ int) error {
				return w.makeNamespace(ctx, program)
			}); err != nil {
				return err
			}
			for i := range 2 * o.Sizes.Repetitions {
				if leader, err = o.succeed(ctx, w, leader, i%2 == 0); err != nil {
					return fmt.Errorf("%s: %w", program, err)
				}
			}
			if _, err := leader.Stop(); err != nil {
				return err
			}
		}
		return nil
	})
}

// replica starts one that takes part in the election, and waits until it is ready to take over.
func (o *Options) replica(ctx context.Context, w *world, program string, flags ...string) (*running, error) {
	r, err := o.start(ctx, w, program, append(flags, "--leader-elect=true")...)
	return r, errors.Join(err, sleep(ctx, between))
}

// succeed ends the leader and returns the next one.
func (o *Options) succeed(ctx context.Context, w *world, leader *running, told bool) (*running, error) {
	scenario, signal := "the leader killed", syscall.SIGKILL
	if told {
		scenario, signal = "the leader told to stop", syscall.SIGTERM
	}
	o.statusf("failover, %s, %s", leader.name, scenario)
	standby, err := o.replica(ctx, w, leader.name)
	if err != nil {
		return nil, err
	}
	before, err := w.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, leader.name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := syscall.Kill(leader.PID(), signal); err != nil {
		return nil, err
	}
	at, err := w.filledBy(ctx, standby, before)
	if err != nil {
		return nil, err
	}
	o.add(scenario, "time until the next token Secret is filled, s", leader.name, at.Sub(begun).Seconds())
	<-leader.Done()
	return standby, nil
}

// filledBy returns when a Secret is filled by the standby, which holds the Lease then. What the old leader fills in its
// last moments does not count.
func (w *world) filledBy(ctx context.Context, standby *running, before *coordinationv1.Lease) (time.Time, error) {
	for {
		begun := time.Now()
		name := fmt.Sprintf("next-%d", begun.UnixNano())
		took, err := w.complete(ctx, standby, []string{filled(standby.name, name)}, 1, func(ctx context.Context, _ int) error {
			return w.makeTokenSecret(ctx, standby.name, name, "default")
		})
		if err != nil {
			return time.Time{}, err
		}
		now, err := w.client.CoordinationV1().Leases(before.Namespace).Get(ctx, before.Name, metav1.GetOptions{})
		if err != nil {
			return time.Time{}, err
		}
		at, holder := begun.Add(took), *now.Spec.HolderIdentity
		if holder != "" && holder != *before.Spec.HolderIdentity && now.Spec.AcquireTime.Time.Before(at) {
			return at, nil
		}
	}
}

const (
	// podNamespace has the Pods.
	podNamespace = "bench-pods"
	webhooks     = "MutatingAdmissionWebhook,ValidatingAdmissionWebhook"
)

// admission is a control plane with what admits its Pods.
type admission struct {
	*world

	flags   map[string][]string // of kube-apiserver
	own     *running            // ours, nil without
	mutates bool
}

// The ways of admission: none, kube-apiserver's own plugin, our webhook, and that with the policy that completes Pods.
const bare, inTree, webhook, policy = 0, 1, 2, 3

// pods are created in each way of admission, one after the other. Each has a control plane of its own, because the plugin is on or
// off in a whole kube-apiserver.
func (o *Options) pods(ctx context.Context) error {
	without := func(plugins string) map[string][]string {
		return map[string][]string{"disable-admission-plugins": {plugins}}
	}
	return o.admitted(ctx, []*admission{
		bare:    {flags: without("ServiceAccount," + webhooks)},
		inTree:  {flags: without(webhooks), mutates: true},
		webhook: {mutates: true},
		policy:  {mutates: true},
	}, 0)
}

// admitted starts the control planes from the given one on, and measures when all run.
func (o *Options) admitted(ctx context.Context, all []*admission, from int) error {
	if from < len(all) {
		return onFresh(ctx, devcluster.Options{APIServerFlags: all[from].flags}, func(ctx context.Context, w *world) error {
			all[from].world = w
			return o.admitted(ctx, all, from+1)
		})
	}
	for i, a := range all {
		if err := o.admit(ctx, i, a); err != nil {
			return err
		}
	}
	for range o.Sizes.Repetitions {
		// A hundred clients take long, and many Pods at once; one client needs more Pods for its p99.
		if err := errors.Join(
			o.create(ctx, "one client", 1, o.Sizes.Pods, all),
			o.create(ctx, "100 clients", 100, max(1, o.Sizes.Pods/50), all),
		); err != nil {
			return err
		}
	}
	for _, a := range all {
		if err := each(ctx, o.Sizes.Accounts, writers, func(ctx context.Context, i int) error {
			return a.makeAccount(ctx, podNamespace, "account-"+strconv.Itoa(i))
		}); err != nil {
			return err
		}
	}
	return o.create(ctx, fmt.Sprintf("one client, %d accounts in the namespace", o.Sizes.Accounts), 1, o.Sizes.Pods, all)
}

// admit starts ours, and returns once the world admits Pods as it has to.
func (o *Options) admit(ctx context.Context, way int, a *admission) error {
	ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, errors.New("no Pod is admitted as it has to be"))
	defer cancel()
	if err := a.makeNamespace(ctx, podNamespace); err != nil {
		return err
	}
	if way == webhook || way == policy {
		port, err := devcluster.FreePort()
		if err != nil {
			return err
		}
		if a.own, err = o.start(ctx, a.world, ours, "--webhook-port="+strconv.Itoa(port), "--webhook-registration=url"); err != nil {
			return err
		}
	} else if err := a.makeAccount(ctx, podNamespace, "default"); err != nil { // no program does
		return err
	}
	if way == policy {
		objects, err := manifests.Completion()
		if err != nil {
			return err
		}
		for _, object := range objects {
			if err := a.client.CoreV1().RESTClient().Patch(types.ApplyYAMLPatchType).AbsPath(object.Path()).Param("fieldManager", "bench").
				Body(object.YAML).Do(ctx).Error(); err != nil {
				return err
			}
		}
	}
	// Nothing announces when kube-apiserver has learned of a registration, or of a policy.
	return await.Poll(ctx, func(ctx context.Context) error {
		if err := a.makePod(ctx, a.mutates); err != nil || way != policy {
			return err
		}
		metrics, err := a.APIServerMetrics(ctx)
		if err == nil && metrics.Sum("apiserver_mutating_admission_policy_check_total", nil) == 0 {
			err = errors.New("the policy does not act yet")
		}
		return err
	})
}

// costs are the CPU seconds of kube-apiserver and of ours by now.
func (a *admission) costs() (server, own float64, err error) {
	used, err := measure.CPU(a.APIServerPID())
	if err != nil || a.own == nil {
		return used.Seconds(), 0, err
	}
	ours, err := measure.CPU(a.own.PID())
	return used.Seconds(), ours.Seconds(), err
}

// create has clients create Pods at once, so many times, each time in all worlds. The difference of two p99 is noise.
func (o *Options) create(ctx context.Context, variant string, clients, times int, all []*admission) error {
	o.statusf("Pods, %s", variant)
	took := make([][]float64, len(all))
	var server, own [policy + 1]float64 // CPU, ms for each Pod
	for i, a := range all {
		var err error
		if server[i], own[i], err = a.costs(); err != nil {
			return err
		}
	}
	for i := range times {
		for j := range all {
			way := (i + j) % len(all) // none always comes behind the same one
			batch := make([]float64, clients)
			if err := each(ctx, clients, clients, func(ctx context.Context, i int) error {
				begun := time.Now()
				err := all[way].makePod(ctx, all[way].mutates)
				batch[i] = float64(time.Since(begun)) / float64(time.Millisecond)
				return err
			}); err != nil {
				return err
			}
			if i > times/25 { // the first ones find nothing warm
				took[way] = append(took[way], batch...)
			}
		}
	}
	for i, a := range all {
		usedServer, usedOwn, err := a.costs()
		if err != nil {
			return err
		}
		server[i], own[i] = (usedServer-server[i])*1000/float64(times*clients), (usedOwn-own[i])*1000/float64(times*clients)
	}
	for _, way := range []int{webhook, policy} {
		scenario := "Pods, " + variant
		if way == policy {
			scenario += ", completion policy"
		}
		for _, i := range []int{inTree, way} {
			program := ours
			if i == inTree {
				program = kcm
			}
			o.add(scenario, "p50, ms", program, quantile(took[i], 0.5))
			o.add(scenario, "added to p50, ms", program, quantile(took[i], 0.5)-quantile(took[bare], 0.5))
			o.add(scenario, "p99, ms", program, quantile(took[i], 0.99))
			o.add(scenario, "CPU of kube-apiserver for each, ms", program, server[i])
			o.add(scenario, "CPU of ours for each, ms", program, own[i])
		}
	}
	return nil
}

// makePod creates a Pod. It is an error if it gets no account and no token volume, or does, other than wanted.
func (w *world) makePod(ctx context.Context, mutated bool) error {
	pod, err := w.client.CoreV1().Pods(podNamespace).Create(ctx, everyday(), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if got := slices.ContainsFunc(pod.Spec.Volumes, func(volume corev1.Volume) bool {
		return volume.Projected != nil && strings.HasPrefix(volume.Name, "kube-api-access-")
	}) && pod.Spec.ServiceAccountName == "default" && len(pod.Spec.Containers[0].VolumeMounts) == 2; got != mutated {
		return fmt.Errorf("pod %s has a token volume: %t", pod.Name, got)
	}
	return nil
}

// everyday is a Pod of everyday size.
func everyday() *corev1.Pod {
	probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/true"}}}}
	container := corev1.Container{
		ReadinessProbe: probe, LivenessProbe: probe, Name: "app", Image: "registry.example/team/app:v1.2.3",
		Args: []string{"--listen=:8080", "--log-level=info"},
		Env: []corev1.EnvVar{{Name: "POD_NAME", Value: "x"}, {Name: "REGION", Value: "eu-west-1"},
			{Name: "LOG_FORMAT", Value: "json"}},
		Ports:        []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
		}},
	}
	sidecar := container
	sidecar.Name, sidecar.Ports = "sidecar", nil
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "app-", Labels: map[string]string{"app.kubernetes.io/name": "app", "app.kubernetes.io/part-of": "shop"},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{container, sidecar},
			Volumes:    []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
}

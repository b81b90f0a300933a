// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
	"sa-controller-manager/test/integration/faultproxy"
)

func killLeader(ctx context.Context, w *World) (func(context.Context) error, error) {
	leader, err := w.leader(ctx)
	if err != nil {
		return nil, err
	}
	if err := leader.kill(); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
		defer cancel()
		return leader.ready(ctx)
	}, nil
}

func pauseLeader(ctx context.Context, w *World) (func(context.Context) error, error) {
	leader, err := w.leader(ctx)
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { return leader.now().resume() }, leader.now().manager.Pause()
}

func killAPIServer(_ context.Context, w *World) (func(context.Context) error, error) {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
		defer cancel()
		return w.cluster.StartAPIServer(ctx)
	}, w.cluster.KillAPIServer()
}

func killEtcd(_ context.Context, w *World) (func(context.Context) error, error) {
	return func(ctx context.Context) error {
		if err := w.cluster.StartEtcd(); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
		defer cancel()
		return w.cluster.AwaitAPIServer(ctx)
	}, w.cluster.KillEtcd()
}

// quickPings has the binary find out within 5 s, in place of 45, that nobody answers on a
// connection (k8s.io/apimachinery pkg/util/net, http.go).
func quickPings(binary devcluster.Binary) devcluster.Binary {
	binary.Env = append(binary.Env, "HTTP2_READ_IDLE_TIMEOUT_SECONDS=2", "HTTP2_PING_TIMEOUT_SECONDS=3")
	return binary
}

// pingTimeout is how long that may take on a machine that is busy, and while other faults keep
// a process from connecting again.
const pingTimeout = 30 * time.Second

// silenceConnections has nothing pass any more through the connections that are open, and
// no peer close them. Only an unanswered ping shows it, and a process that has noticed opens
// another connection.
func silenceConnections(_ context.Context, w *World) (func(context.Context) error, error) {
	struck := map[*Replica]*term{}
	for _, r := range w.replicas {
		struck[r] = r.now()
		struck[r].proxy.Silence()
	}
	begun := time.Now()
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, pingTimeout)
		defer cancel()
		for r, t := range struck {
			err := t.awaitRequest(ctx, func(r faultproxy.Request) bool { return r.Verb == "watch" && r.Began.After(begun) })
			if err != nil {
				w.report(checker.Violated(1, "%s keeps using a silent connection: %v", r.name, err))
			}
		}
		for _, t := range struck {
			t.proxy.EndSilence()
		}
		return nil
	}, nil
}

// repairLimit is how long a configuration may stay changed on a healthy watch: twice the 2 s that are promised, because a
// race-enabled build is slower.
const repairLimit = 4 * time.Second

// spoil does something to the registration.
type spoil func(ctx context.Context, w *World) error

// tampers is a fault that ends when the registration is as it was.
func tampers(do spoil) Inject {
	return func(ctx context.Context, w *World) (func(context.Context) error, error) {
		before, err := w.awaitRegistered(ctx)
		if err != nil {
			return nil, err
		}
		begun := time.Now()
		if err := do(ctx, w); err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			limit := repairLimit
			if w.Busy {
				limit = settleTimeout
			}
			ctx, cancel := context.WithDeadline(ctx, begun.Add(limit))
			defer cancel()
			err := await.Poll(ctx, func(ctx context.Context) error {
				now, err := w.registration(ctx)
				if differ := cmp.Diff(before, now); err == nil && differ != "" {
					return errors.New(differ)
				}
				return err
			})
			if err != nil {
				w.report(checker.Violated(5, "the registration is not repaired within %v: %v", limit, err))
			}
			return nil
		}, nil
	}
}

// configuration is one of the two.
type configuration string

const (
	mutating   configuration = "mutatingwebhookconfigurations"
	validating configuration = "validatingwebhookconfigurations"
)

// edit puts a value at a path of a configuration.
func edit(which configuration, path string, value any) spoil {
	return func(ctx context.Context, w *World) error {
		body, err := json.Marshal([]map[string]any{{"op": "add", "path": path, "value": value}})
		if err != nil {
			return err
		}
		return w.client.AdmissionregistrationV1().RESTClient().Patch(types.JSONPatchType).Resource(string(which)).
			Name(workload.ConfigurationName).Body(body).Do(ctx).Error()
	}
}

// editBundle has kube-apiserver trust another CA.
func editBundle(which configuration) spoil {
	return func(ctx context.Context, w *World) error {
		stranger, err := os.ReadFile(w.cluster.ClientCAFile())
		if err != nil {
			return err
		}
		return edit(which, "/webhooks/0/clientConfig/caBundle", stranger)(ctx, w)
	}
}

// drop deletes a configuration.
func drop(which configuration) spoil {
	return func(ctx context.Context, w *World) error {
		return w.client.AdmissionregistrationV1().RESTClient().Delete().Resource(string(which)).
			Name(workload.ConfigurationName).Do(ctx).Error()
	}
}

// registered is what kube-apiserver knows of the webhook.
type registered struct {
	Mutating   []admissionregistrationv1.MutatingWebhook
	Validating []admissionregistrationv1.ValidatingWebhook
}

// registration reads both configurations. One that is not there has no webhooks.
func (w *World) registration(ctx context.Context) (registered, error) {
	api := w.client.AdmissionregistrationV1()
	mutating, err1 := api.MutatingWebhookConfigurations().Get(ctx, workload.ConfigurationName, metav1.GetOptions{})
	validating, err2 := api.ValidatingWebhookConfigurations().Get(ctx, workload.ConfigurationName, metav1.GetOptions{})
	err := errors.Join(workload.Ignore(err1, apierrors.IsNotFound), workload.Ignore(err2, apierrors.IsNotFound))
	if err != nil {
		return registered{}, fmt.Errorf("get the webhook configurations: %w", err)
	}
	return registered{mutating.Webhooks, validating.Webhooks}, nil
}

// awaitRegistered returns both configurations once each has its one webhook. While kube-apiserver is
// asked to prove that it reaches the webhook, the mutating one has a second, and the webhook of each
// leaves out the probe.
func (w *World) awaitRegistered(ctx context.Context) (state registered, err error) {
	ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
	defer cancel()
	err = await.Poll(ctx, func(ctx context.Context) error {
		state, err = w.registration(ctx)
		switch {
		case err != nil:
			return err
		case len(state.Mutating) != 1 || len(state.Validating) != 1:
			return fmt.Errorf("the configurations have %d and %d webhooks, want one each", len(state.Mutating), len(state.Validating))
		case slices.ContainsFunc(state.Validating[0].MatchConditions, leavesOutProbe):
			return errors.New("the validating webhook leaves out the probe")
		}
		return nil
	})
	if err != nil {
		return state, fmt.Errorf("await the registration: %w", err)
	}
	return state, nil
}

func leavesOutProbe(c admissionregistrationv1.MatchCondition) bool {
	return c.Name == "except-the-probe"
}

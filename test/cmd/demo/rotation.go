// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

// rotation is the demonstration that rotates the keys of a cluster in use, from RSA to ECDSA, back,
// and to ECDSA again. kube-apiserver has its tokens signed by the manager, whose keys are in a key
// ring. Meanwhile clients request tokens and use old and new ones, and no call may fail. The
// operator's commands do the rotation.
type rotation struct {
	*story

	load    *load
	issued  []issuedToken // must stay valid to the end
	reviews int           // of issued tokens, all accepted

	keyFlags []string // of the manager and of the commands, about keys outside of the ring
	used     []key    // that have signed, in order

	first, second, third key
}

// key is a key of the key ring.
type key struct{ id, algorithm string }

func (k key) String() string { return k.algorithm + " " + k.id }

// issuedToken is a token of an earlier step.
type issuedToken struct {
	name, token string
	signer      key
}

func showRotation(ctx context.Context, s *story) error {
	s.Linef("A rotation of service account keys in a cluster that is in use\n")
	d := &rotation{story: s}
	return d.demonstrate(ctx, d.startSigner, d.rotationSteps())
}

// demonstrate runs the steps on a cluster whose signer is started before it.
func (d *rotation) demonstrate(ctx context.Context, startSigner func(context.Context) error, steps []step) (err error) {
	if d.binary, err = devcluster.FindBinary(ctx); err != nil {
		return err
	}
	if err := d.startCluster(ctx, devcluster.Options{
		ExternalSigner: true,
		BeforeAPIServer: func(cluster *devcluster.Cluster) error {
			d.cluster = cluster
			return startSigner(ctx)
		},
	}); err != nil {
		return err
	}
	if err := d.managerReady(ctx); err != nil {
		return err
	}
	d.Ready("sa-controller-manager with a key ring, as the external signer of kube-apiserver")
	err = d.show(ctx, d.underLoad(steps))
	if d.load != nil {
		d.load.end()
		err = errors.Join(err, d.load.judge(d.used...))
	}
	return err
}

// underLoad ends each step with a check that the clients make progress and that every token issued
// so far is still accepted.
func (d *rotation) underLoad(steps []step) []step {
	for i, step := range steps {
		steps[i].run = func(ctx context.Context) error {
			if err := step.run(ctx); err != nil {
				return err
			}
			if err := d.load.awaitMore(ctx); err != nil {
				return err
			}
			return d.reviewAll(ctx)
		}
	}
	return steps
}

func (d *rotation) rotationSteps() []step {
	return []step{
		{
			"Clients request and use tokens",
			"a requested token and a token Secret, both signed with the RSA key, and clients that use them", d.clientsStart,
		},
		{
			"A rotation to ECDSA is started",
			"a new key that kube-apiserver publishes and that does not sign", d.rotationIsStarted,
		},
		{
			"Too early, the command refuses",
			"a refusal that says until when to wait, and the previous key signing", d.tooEarly,
		},
		{
			"The new key signs",
			"new tokens signed with the ECDSA key", d.newKeySigns,
		},
		{
			"The rotation is completed",
			"phase completed, and the ECDSA key signing", d.rotationIsCompleted,
		},
		{
			"The rotation is rolled back",
			"new tokens signed with the RSA key again", d.rolledBack,
		},
		{
			"Another rotation, in one go",
			"new tokens signed with a third key", d.rotatedAgain,
		},
	}
}

// startSigner creates the key ring and starts the manager that signs with it. kube-apiserver
// starts after it.
func (d *rotation) startSigner(ctx context.Context) error {
	// There is no cluster to ask yet.
	ring, err := d.keys(ctx, "init --from-private-key-file="+d.cluster.SigningKeyFile())
	if err != nil {
		return err
	}
	if d.first, err = ring.key("active"); err != nil {
		return err
	}
	return d.startManager(append(d.keyFlags, "--service-account-private-key-file=", d.ringFlag(),
		"--external-signer-socket="+d.cluster.SignerSocket(), "--external-signer-refresh-hint=1s", "--token-secrets=manual")...)
}

func (d *rotation) ringFlag() string {
	return "--service-account-key-ring=" + filepath.Join(d.cluster.Dir(), "keys", "ring.json")
}

// keyRing is the JSON output of the commands.
type keyRing struct {
	Generation int64
	Phase      string
	Keys       []struct{ ID, Algorithm, Role string }
}

// key returns the key that has a role.
func (r keyRing) key(role string) (key, error) {
	for _, k := range r.Keys {
		if k.Role == role {
			return key{k.ID, k.Algorithm}, nil
		}
	}
	return key{}, fmt.Errorf("no key is %s", role)
}

// keys runs a command of the product on the key ring.
func (d *rotation) keys(ctx context.Context, words string, flags ...string) (ring keyRing, err error) {
	output, err := d.output(ctx, "keys "+words, slices.Concat(flags, d.keyFlags, []string{d.ringFlag(), "-o=json"})...)
	if err != nil {
		return ring, err
	}
	return ring, json.Unmarshal(output, &ring)
}

// change runs a command that changes the ring, and returns when the manager has loaded the change.
func (d *rotation) change(ctx context.Context, words string) (keyRing, error) {
	d.Notef("command", "sa-controller-manager keys %s", words)
	ring, err := d.keys(ctx, words, "--kubeconfig="+d.cluster.Kubeconfig())
	if err != nil {
		return keyRing{}, err
	}
	return ring, d.manager.AwaitLog(ctx, fmt.Sprintf("generation=%d signs=", ring.Generation))
}

func (d *rotation) clientsStart(ctx context.Context) error {
	if _, err := await.ServiceAccounts(ctx, d.client, metav1.NamespaceDefault, await.Named[*corev1.ServiceAccount](account)); err != nil {
		return err
	}
	bound, legacy, err := d.issue(ctx, d.first)
	if err != nil {
		return err
	}
	// kube-apiserver accepts the token of a Secret once its cache has the Secret.
	if err := await.Poll(ctx, func(ctx context.Context) error { return d.use(ctx, legacy) }); err != nil {
		return err
	}
	d.load = startLoad(d, bound, legacy)
	d.Notef("started", "three clients: one requests tokens and uses them, two use the tokens they have")
	return nil
}

func (d *rotation) rotationIsStarted(ctx context.Context) (err error) {
	if d.second, err = d.startRotation(ctx, "rotate start --algorithm=P-256"); err != nil {
		return err
	}
	if n := d.load.signedBy(d.second); n > 0 {
		return fmt.Errorf("%d tokens are signed with the next key", n)
	}
	_, _, err = d.issue(ctx, d.first)
	return err
}

// startRotation returns the next key once kube-apiserver publishes it.
func (d *rotation) startRotation(ctx context.Context, words string) (key, error) {
	ring, err := d.change(ctx, words)
	if err != nil {
		return key{}, err
	}
	next, err := ring.key("next")
	if err != nil {
		return key{}, err
	}
	d.Notef("observed", "the next key is %s", next)
	return next, await.Poll(ctx, func(ctx context.Context) error {
		body, err := d.client.CoreV1().RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(ctx)
		if err != nil {
			return err
		}
		type published struct {
			ID string `json:"kid"`
		}
		var set struct{ Keys []published }
		if err := json.Unmarshal(body, &set); err != nil {
			return err
		}
		if !slices.Contains(set.Keys, published{next.id}) {
			return fmt.Errorf("%d keys are published, without %s", len(set.Keys), next)
		}
		d.Notef("observed", "kube-apiserver publishes %d keys in its JWKS", len(set.Keys))
		return nil
	})
}

func (d *rotation) tooEarly(ctx context.Context) error {
	_, err := d.change(ctx, "rotate activate")
	refused, ok := errors.AsType[*refusedError](err)
	if !ok || !strings.Contains(refused.message, "wait until") {
		return fmt.Errorf("no refusal that says until when to wait, but: %w", orNil(err))
	}
	d.Notef("refused", "%s", strings.ReplaceAll(refused.message, ": ", ":\n"))
	return nil
}

func (d *rotation) newKeySigns(ctx context.Context) error {
	d.Notef("because", "no client here keeps a copy of the key set, the wait is skipped")
	return d.changeAndSign(ctx, "rotate activate --force", d.second)
}

func (d *rotation) rotationIsCompleted(ctx context.Context) error {
	return d.changeAndSign(ctx, "rotate complete", d.second)
}

func (d *rotation) rolledBack(ctx context.Context) error {
	return d.changeAndSign(ctx, "rollback", d.first)
}

func (d *rotation) rotatedAgain(ctx context.Context) (err error) {
	if d.third, err = d.startRotation(ctx, "rotate start --algorithm=P-256 --cache-age=1s"); err != nil {
		return err
	}
	return d.changeAndSign(ctx, "rotate complete --wait", d.third)
}

// changeAndSign runs a command, and verifies that new tokens of all kinds are signed with k.
func (d *rotation) changeAndSign(ctx context.Context, words string, k key) error {
	ring, err := d.change(ctx, words)
	if err != nil {
		return err
	}
	d.Notef("observed", "the rotation is %s, generation %d", ring.Phase, ring.Generation)
	before := d.load.signedBy(k)
	if _, _, err := d.issue(ctx, k); err != nil {
		return err
	}
	if err := d.load.awaitMore(ctx); err != nil {
		return err
	}
	if d.load.signedBy(k) == before {
		return fmt.Errorf("the clients get no token that is signed with %s", k)
	}
	return nil
}

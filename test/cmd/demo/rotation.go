// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

const (
	// cacheAge is how long relying parties keep the key set here. The clients of the demonstration ask
	// kube-apiserver, which fetches keys that it does not know.
	cacheAge = " --cache-age=2s"
	// kindEvery is how many rotations there are in a row, of which the last one changes the kind of the key.
	kindEvery = 4
)

// rotation is the demonstration that rotates the keys of a cluster in use, on three hosts. Each
// kube-apiserver has its tokens signed by the manager of its host, whose keys are in a key ring. The operator's
// commands change the ring of the first host, of which the others get copies, late. Meanwhile clients request
// tokens at one host and use old and new ones at another one, and no call may fail.
type rotation struct {
	*story

	hosts    []*host // the first one is story.cluster
	managers map[*devcluster.Cluster]*devcluster.Manager
	load     *load
	issued   []issuedToken // must stay valid to the end
	reviews  int           // of issued tokens, all accepted

	keyFlags []string // of the manager and of the commands, about keys outside of the ring
	without  string   // the flag for a host that is lost
	used     []key    // that have signed, in order
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
	s.Linef("Rotations of service account keys in a cluster of three hosts that is in use\n")
	d := &rotation{story: s}
	return d.demonstrate(ctx, d.startSigner, []string{"cp-2", "cp-3"}, d.rotationSteps())
}

// demonstrate runs the steps on a cluster whose signer is started before it.
func (d *rotation) demonstrate(ctx context.Context, startSigner func(context.Context) error, names []string, steps []step) (err error) {
	if d.binary, err = devcluster.FindBinary(ctx); err != nil {
		return err
	}
	d.managers = map[*devcluster.Cluster]*devcluster.Manager{}
	defer func() { err = errors.Join(err, d.stopHosts()) }()
	if err := d.startHosts(ctx, startSigner, names); err != nil {
		return err
	}
	err = d.show(ctx, d.underLoad(steps))
	if d.load != nil {
		d.load.end()
		err = errors.Join(err, d.load.judge(d.used...))
	}
	return err
}

func (d *rotation) startHosts(ctx context.Context, startSigner func(context.Context) error, names []string) error {
	if err := d.startCluster(ctx, devcluster.Options{
		ExternalSigner: true,
		BeforeAPIServer: func(cluster *devcluster.Cluster) error {
			if d.cluster == nil {
				d.cluster = cluster
				return startSigner(ctx)
			}
			return d.startJoined(ctx, cluster)
		},
	}); err != nil {
		return err
	}
	if err := d.managerReady(ctx); err != nil {
		return err
	}
	first, err := newHost("cp-1", d.cluster)
	if err != nil {
		return err
	}
	d.hosts = []*host{first}
	for _, name := range names {
		if err := d.join(ctx, name); err != nil {
			return err
		}
	}
	d.Ready(fmt.Sprintf("%d hosts, each with sa-controller-manager, a key ring of its own and kube-apiserver, for which it signs",
		len(d.hosts)))
	return nil
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
			"a requested token and a token Secret, both signed with the active key, and clients that use them", d.clientsStart,
		},
		{
			"Too early, the command refuses",
			"a refusal that says until when to wait, and the active key signing", d.tooEarly,
		},
		d.rotations(1), d.rotations(5),
		{
			"The last rotation is rolled back",
			"new tokens signed with the previous key again", d.rolledBack,
		},
		d.rotations(9),
		{
			"A host is lost",
			"a refusal that names it, and a rotation without it", d.hostIsLost,
		},
		d.rotations(13), d.rotations(17),
	}
}

// rotations is a step of so many in a row that the last one changes the kind of the key.
func (d *rotation) rotations(from int) step {
	return step{
		fmt.Sprintf("Rotations %d to %d, copied late and in random order", from, from+kindEvery-1),
		"each time new tokens signed with the next key", func(ctx context.Context) error { return d.rotateAll(ctx, from, from+kindEvery) },
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
	if err := d.uses(ring); err != nil {
		return err
	}
	return d.startManager(d.signerFlags(&host{Cluster: d.cluster})...)
}

func (d *rotation) signerFlags(h *host) []string {
	return slices.Concat(d.keyFlags, []string{
		"--service-account-private-key-file=", "--service-account-key-ring=" + h.ring(), "--external-signer-socket=" + h.SignerSocket(),
		"--external-signer-refresh-hint=1s", "--token-secrets=manual", "--leader-elect=true",
	})
}

// uses notes the key that signs from now on.
func (d *rotation) uses(ring keyRing) error {
	active, err := ring.key("active")
	if err == nil && !slices.Contains(d.used, active) {
		d.used = append(d.used, active)
	}
	return err
}

// keyRing is the JSON output of the commands.
type keyRing struct {
	Generation int64
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

// keys runs a command of the product on the key ring of the first host.
func (d *rotation) keys(ctx context.Context, words string, flags ...string) (ring keyRing, err error) {
	if len(flags) > 0 { // there is a cluster to ask
		flags = append(flags, d.otherAPIServers()...)
	}
	output, err := d.output(ctx, "keys "+words, slices.Concat(flags, d.keyFlags, []string{
		"--service-account-key-ring=" + (&host{Cluster: d.cluster}).ring(), "-o=json",
	})...)
	if err != nil {
		return ring, err
	}
	return ring, json.Unmarshal(output, &ring)
}

// change runs a command that changes the ring, and returns when the manager has loaded the change. Another
// key may sign from when the command begins.
func (d *rotation) change(ctx context.Context, words string) (keyRing, error) {
	ring, err := d.keys(ctx, words, "--kubeconfig="+d.cluster.Kubeconfig())
	if err != nil {
		return keyRing{}, err
	}
	if err := d.uses(ring); err != nil {
		return keyRing{}, err
	}
	return ring, d.manager.AwaitLog(ctx, fmt.Sprintf("generation=%d signs=", ring.Generation))
}

func (d *rotation) clientsStart(ctx context.Context) error {
	if _, err := await.ServiceAccounts(ctx, d.client, metav1.NamespaceDefault, await.Named[*corev1.ServiceAccount](account)); err != nil {
		return err
	}
	bound, legacy, err := d.issue(ctx, d.used[0])
	if err != nil {
		return err
	}
	// kube-apiserver accepts the token of a Secret once its cache has the Secret.
	for _, h := range d.hosts {
		if err := await.Poll(ctx, func(ctx context.Context) error { return h.use(ctx, legacy) }); err != nil {
			return err
		}
	}
	d.load = startLoad(d, bound, legacy)
	d.Notef("started", "three clients: one requests tokens and uses them, two use the tokens they have, at all hosts")
	return nil
}

func (d *rotation) tooEarly(ctx context.Context) error {
	_, err := d.change(ctx, "rotate")
	refused, ok := errors.AsType[*refusedError](err)
	if !ok || !strings.Contains(refused.message, "copies of the key set may be without key") {
		return fmt.Errorf("no refusal that says until when to wait, but: %w", orNil(err))
	}
	d.Notef("refused", "%s", strings.ReplaceAll(refused.message, ": ", ":\n"))
	_, _, err = d.issue(ctx, d.used[0])
	return err
}

func (d *rotation) rotateAll(ctx context.Context, from, to int) error {
	for n := from; n < to; n++ {
		next := ""
		if n%kindEvery == 0 {
			next = "--algorithm=" + []string{"RSA-2048", "P-256"}[n/kindEvery%2]
		}
		if err := d.rotate(ctx, fmt.Sprintf("rotation %d", n), next, ""); err != nil {
			return fmt.Errorf("rotation %d: %w", n, err)
		}
	}
	return nil
}

// rotate replaces the next key first, if it is to be another one, has the next key sign, and verifies
// that it does. The hosts get the copy of what was changed before while the command waits.
func (d *rotation) rotate(ctx context.Context, label, next, flags string) error {
	command := ""
	if next != "" {
		if _, err := d.change(ctx, "next "+next); err != nil {
			return err
		}
		command = "keys next " + next + ", then "
	}
	copied := d.copyLate(ctx)
	words := "rotate --wait" + cacheAge + d.without + flags
	ring, err := d.change(ctx, words)
	if err := errors.Join(err, copied()); err != nil {
		return err
	}
	active, err := ring.key("active")
	if err != nil {
		return err
	}
	d.Notef(label, "%skeys %s: %s signs", command, words, active)
	return d.signs(ctx, active)
}

// signs verifies that new tokens of all kinds are signed with k.
func (d *rotation) signs(ctx context.Context, k key) error {
	before := d.load.signedBy(k)
	if _, _, err := d.issue(ctx, k); err != nil {
		return err
	}
	return await.Poll(ctx, func(context.Context) error {
		if d.load.signedBy(k) == before {
			return fmt.Errorf("the clients get no token that is signed with %s", k)
		}
		return nil
	})
}

func (d *rotation) rolledBack(ctx context.Context) error {
	ring, err := d.change(ctx, "rollback")
	if err != nil {
		return err
	}
	active, err := ring.key("active")
	if err != nil {
		return err
	}
	if len(d.used) < 2 || active != d.used[len(d.used)-2] {
		return fmt.Errorf("%s signs, not the previous one of %v", active, d.used)
	}
	d.Notef("command", "keys rollback: %s signs", active)
	return d.signs(ctx, active)
}

func (d *rotation) hostIsLost(ctx context.Context) error {
	if len(d.hosts) < 3 {
		d.Notef("skipped", "there is one host")
		return nil
	}
	lost := d.hosts[2]
	if err := lost.lose(d.managers[lost.Cluster]); err != nil {
		return err
	}
	d.Notef("lost", "kube-apiserver and sa-controller-manager of %s", lost.name)
	if err := d.copyLate(ctx)(); err != nil { // the host that is left must not be what is missing
		return err
	}
	if err := await.Poll(ctx, func(ctx context.Context) error {
		_, err := d.keys(ctx, "rotate"+cacheAge, "--kubeconfig="+d.cluster.Kubeconfig())
		refused, ok := errors.AsType[*refusedError](err)
		if !ok {
			return fmt.Errorf("no refusal, but: %w", orNil(err))
		}
		if !strings.Contains(refused.message, "--without-host="+lost.name) {
			return err // it may be too early, too
		}
		d.Notef("refused", "%s", strings.ReplaceAll(refused.message, ": ", ":\n"))
		return nil
	}); err != nil {
		return err
	}
	d.without = " --without-host=" + lost.name
	return d.rotate(ctx, "rotation", "", "")
}

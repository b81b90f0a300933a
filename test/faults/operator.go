// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"time"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
)

const (
	// ringFile is the key ring of a replica, beside its files.
	ringFile = "sa-keys/ring.json"
	// operatorPace is what the operator waits after each command, at least, and twice that at
	// most: a rotation comes while the Secrets of the last one are at every step.
	operatorPace = 700 * time.Millisecond
	// killedWithin is when a command is killed that is, at most.
	killedWithin = 400 * time.Millisecond
)

// alreadyDone is what a rollback says that had been killed when it had done its work: it ends
// with exitRefused then.
const alreadyDone = "nothing to go back to"

// Operations of the operator.
const (
	activated  = "activate a key"
	rolledBack = "roll back a rotation"
	pruned     = "prune keys"
	killed     = "kill a keys command"
)

// operator rotates the keys of all replicas as docs/rotation.md says: by commands on the key
// ring of the first one, of which the others have copies. Now and then a command is
// killed, and run again.
type operator struct {
	world  *World
	binary devcluster.Binary
}

// provide gives a replica its key ring: the first one a new one with the cluster's key,
// the others a copy of that.
func (o *operator) provide(ctx context.Context, r *Replica) error {
	first := o.world.all()[0]
	if r != first {
		return o.copyRing(ctx, first, r)
	}
	_, err := o.keys(ctx, "init", "--from-private-key-file="+o.world.cluster.SigningKeyFile())
	return err
}

// ring is what the commands are run on.
func (o *operator) ring() string { return o.world.all()[0].path(ringFile) }

// keys runs a command and returns what it prints.
func (o *operator) keys(ctx context.Context, words ...string) ([]byte, error) {
	return o.keysOn(ctx, o.ring(), words...)
}

// activeKey is the ID of the key that signs by the ring file.
func (o *operator) activeKey(ctx context.Context) (string, error) {
	printed, err := o.keys(ctx, "list", "-o=json")
	if err != nil {
		return "", err
	}
	var list struct {
		Keys []struct{ ID, Role string } `json:"keys"`
	}
	if err := json.Unmarshal(printed, &list); err != nil {
		return "", fmt.Errorf("read what keys list prints: %w", err)
	}
	for _, key := range list.Keys {
		if key.Role == "active" {
			return key.ID, nil
		}
	}
	return "", errors.New("keys list shows no active key")
}

// keysOn runs one on another ring than the first replica's.
func (o *operator) keysOn(ctx context.Context, ring string, words ...string) ([]byte, error) {
	args := append(append([]string{"keys"}, words...), "--service-account-key-ring="+ring)
	if words[0] != "init" && words[0] != "list" && words[0] != "import" { // there may be no cluster to ask
		args = append(args, "--kubeconfig="+o.world.cluster.Kubeconfig())
	}
	command := exec.CommandContext(ctx, o.binary.Path, args...)
	command.Env = append(os.Environ(), o.binary.Env...)
	var stderr strings.Builder
	command.Stderr = &stderr
	printed, err := command.Output()
	if strings.Contains(stderr.String(), devcluster.RaceWarning) {
		o.world.report(checker.Violated(7, "keys %s has a data race:\n%s", words[0], stderr.String()))
	}
	if err == nil || exitCode(err) == exitFound {
		return printed, nil
	}
	return printed, fmt.Errorf("keys %s: %w: %s", strings.Join(words, " "), err, strings.TrimSpace(stderr.String()))
}

// Exit codes of the commands (docs/cli.md): refused, and done with something to see to.
const (
	exitRefused = 1
	exitFound   = 2
)

// exitCode is that of a command that has ended with one, -1 of any other error.
func exitCode(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return -1
}

// copyRing copies a ring as docs/rotation.md says. A process that starts meanwhile waits.
func (o *operator) copyRing(ctx context.Context, from, to *Replica) error {
	o.world.files.Lock()
	defer o.world.files.Unlock()
	_, err := o.keysOn(ctx, to.path(ringFile), "import", from.path(ringFile))
	return err
}

// rotating is an operator at work.
type rotating struct {
	*operator

	random *rand.Rand
	stop   context.CancelFunc
	done   chan struct{}
	err    error
	// operations counts each kind. It is read only after end has returned.
	operations map[string]int
}

// start has the operator rotate until the end is called.
func (o *operator) start(seed uint64) *rotating {
	ctx, stop := context.WithCancel(context.Background())
	r := &rotating{
		operator: o, random: rand.New(rand.NewPCG(seed, hashOf("operator"))), stop: stop,
		done: make(chan struct{}), operations: map[string]int{},
	}
	go func() {
		defer close(r.done)
		for ctx.Err() == nil && r.err == nil {
			r.err = r.rotate(ctx)
		}
	}()
	return r
}

// end returns once a rotation that has begun is over. It is an error if a command has not done
// its work however often it was run.
func (r *rotating) end() error {
	r.stop()
	<-r.done
	return r.err
}

// rotate rotates once. In one rotation of four the next key is replaced before, in another one the
// previous key comes back afterwards.
func (r *rotating) rotate(ctx context.Context) error {
	algorithm := []string{"P-256", "RSA-2048", "P-384"}[r.random.IntN(3)]
	var steps [][]string
	way := r.random.IntN(4)
	if way == 0 {
		steps = append(steps, []string{"next", "--algorithm=" + algorithm})
	}
	steps = append(steps, []string{"rotate", "--wait", "--cache-age=0s"})
	if way == 1 {
		steps = append(steps, []string{"rollback"})
	}
	for _, step := range steps {
		if err := r.step(ctx, step); err != nil {
			return err
		}
	}
	return r.prune(ctx)
}

// step runs a command until it has done its work, and gives every replica the result. One that
// has begun when ctx ends is finished. A rotation that was killed, or has failed, may be over: then the next
// one needs a copy on each replica, too.
func (r *rotating) step(ctx context.Context, words []string) error {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*workload.RestartTimeout)
	defer cancel()
	if r.random.IntN(2) == 0 {
		r.kill(limit, words)
		if err := r.distribute(limit); err != nil {
			return err
		}
	}
	err := workload.Retry(limit, "keys "+strings.Join(words, " "), func(ctx context.Context) error {
		_, err := r.keys(ctx, words...)
		if err == nil || strings.Contains(err.Error(), alreadyDone) {
			return nil
		}
		return errors.Join(err, r.distribute(limit)) // ctx may be over
	})
	if err != nil {
		return err
	}
	r.count(words)
	if err := r.distribute(limit); err != nil {
		return err
	}
	await.Sleep(ctx, operatorPace+time.Duration(r.random.Int64N(int64(operatorPace))))
	return nil
}

func (r *rotating) count(words []string) {
	switch words[0] {
	case "rollback":
		r.operations[rolledBack]++
	case "rotate":
		r.operations[activated]++
	}
}

// kill runs a command and kills it on the way, if it is not faster.
func (r *rotating) kill(ctx context.Context, words []string) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.random.Int64N(int64(killedWithin))))
	defer cancel()
	if _, err := r.keys(ctx, words...); err != nil && ctx.Err() != nil {
		r.operations[killed]++
	}
}

// prune removes what nothing needs. What is refused stays: that is no error.
func (r *rotating) prune(ctx context.Context) error {
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*workload.RestartTimeout)
	defer cancel()
	_, err := r.keys(limit, "prune", "--longest-token-lifetime=0s")
	if err != nil && exitCode(err) != exitRefused {
		return err
	}
	r.operations[pruned]++
	return r.distribute(limit)
}

// distribute gives every other replica a copy of the key ring.
func (r *rotating) distribute(ctx context.Context) error {
	replicas := r.world.all()
	for _, other := range replicas[1:] {
		if err := r.copyRing(ctx, replicas[0], other); err != nil {
			return err
		}
	}
	return nil
}

// ring is what the operator has left: its keys as the ring file has them, the active one among
// them, once kube-apiserver has tokens signed with that one. The signer may have read the last
// change a moment later than the operator made it.
func (w *World) ring(ctx context.Context) (*checker.KeyRing, error) {
	printed, err := w.operator.keys(ctx, "list", "-o=pem")
	if err != nil {
		return nil, err
	}
	ring := &checker.KeyRing{Keys: map[string]crypto.PublicKey{}}
	for block, rest := pem.Decode(printed); block != nil; block, rest = pem.Decode(rest) {
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read the key ring: %w", err)
		}
		ring.Keys[checker.KeyIDOf(block.Bytes)] = key
	}
	if ring.Active, err = w.operator.activeKey(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, workload.RestartTimeout)
	defer cancel()
	return ring, workload.Retry(ctx, "have tokens signed with the active key", func(ctx context.Context) error {
		token, err := w.requestOnce(ctx)
		if err != nil {
			return err
		}
		if id := checker.HeaderOf(token).KeyID; id != ring.Active {
			return fmt.Errorf("kube-apiserver has tokens signed with key %q, want the active key %q", id, ring.Active)
		}
		return nil
	})
}

// oneKey is the ring of a cluster without ring files: the key in its file.
func (w *World) oneKey() (*checker.KeyRing, error) {
	content, err := os.ReadFile(w.cluster.SigningKeyFile())
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, errors.New("the signing key is no PEM")
	}
	private, err := x509.ParsePKCS1PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the signing key: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		return nil, fmt.Errorf("read the signing key: %w", err)
	}
	id := checker.KeyIDOf(der)
	return &checker.KeyRing{Keys: map[string]crypto.PublicKey{id: private.Public()}, Active: id}, nil
}

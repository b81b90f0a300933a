// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/bench/world"
	"sa-controller-manager/test/devcluster"
)

// webhooksOff are the plugins that call webhooks.
const webhooksOff = "MutatingAdmissionWebhook,ValidatingAdmissionWebhook"

// pods is the world in which Pods are created.
type pods struct {
	*Options

	w        *world.World // calls webhooks
	besides  []*world.World
	children []*devcluster.Child
	subjects []subject
	ports    []int // of ours and the null webhooks
}

// start brings up everything that is compared, and tries each once.
func (p *pods) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.Stage, errors.New("the webhooks are not in effect"))
	defer cancel()
	var err error
	if p.ports, err = devcluster.FreePorts(3); err != nil {
		return err
	}
	if err := p.startAPIServers(ctx); err != nil {
		return err
	}
	if err := p.startOurs(ctx); err != nil {
		return err
	}
	if err := p.startNull(ctx); err != nil {
		return err
	}
	for _, s := range p.subjects {
		if err := p.awaitEffect(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (p *pods) startAPIServers(ctx context.Context) error {
	without, err := p.w.Beside(ctx, "no-webhook", map[string][]string{"disable-admission-plugins": {"ServiceAccount," + webhooksOff}})
	if err != nil {
		return err
	}
	p.besides = append(p.besides, without)
	plugin, err := p.w.Beside(ctx, "in-tree", map[string][]string{"disable-admission-plugins": {webhooksOff}})
	if err != nil {
		return err
	}
	p.besides = append(p.besides, plugin)
	p.subjects = []subject{
		{noWebhook, "bench-none", without, false},
		{inTree, "bench-in-tree", plugin, true},
		{null, "bench-null", p.w, false},
		{NullPatch, "bench-null-patch", p.w, true},
		{ours, "bench-ours", p.w, true},
	}
	return nil
}

func (p *pods) subject(name string) subject {
	for _, s := range p.subjects {
		if s.name == name {
			return s
		}
	}
	return subject{}
}

// startOurs has the process register itself, and confines it to its namespace.
func (p *pods) startOurs(ctx context.Context) error {
	var names []string
	for _, s := range p.subjects {
		names = append(names, world.Account(s.namespace, "default"), world.RootCA(s.namespace))
	}
	goal := world.NewGoal(names)
	if err := p.w.Follow(ctx, goal, world.Notice(goal), "serviceaccounts", "configmaps"); err != nil {
		return err
	}
	process, err := p.w.Start(world.Ours(p.Binary, world.Manual), "--webhook-port="+strconv.Itoa(p.ports[0]), "--webhook-registration=url")
	if err != nil {
		return err
	}
	for _, s := range p.subjects {
		if err := p.w.MakeNamespace(ctx, s.namespace); err != nil {
			return err
		}
	}
	if _, err := goal.Wait(ctx); err != nil {
		return err
	}
	if err := process.AwaitReady(ctx); err != nil {
		return err
	}
	if err := p.awaitEffect(ctx, p.subject(ours)); err != nil {
		return err
	}
	return p.w.Confine(ctx, p.subject(ours).namespace)
}

// startNull gives the null webhooks the patch that ours has answered the same Pod with.
func (p *pods) startNull(ctx context.Context) error {
	review, patch := p.file("review.json"), p.file("patch.json")
	if err := p.null(ctx, p.subject(null), p.ports[1], "-capture-file="+review); err != nil {
		return err
	}
	err := await.Poll(ctx, func(ctx context.Context) error {
		if _, err := p.w.TryPod(ctx, p.subject(null).namespace); err != nil {
			return err
		}
		_, err := os.Stat(review)
		return err
	})
	if err != nil {
		return err
	}
	if err := p.askOurs(ctx, review, patch); err != nil {
		return err
	}
	return p.null(ctx, p.subject(NullPatch), p.ports[2], "-patch-file="+patch)
}

func (p *pods) file(name string) string { return filepath.Join(p.w.Dir(), name) }

// null starts this executable as a webhook, and registers it as ours is registered.
func (p *pods) null(ctx context.Context, s subject, port int, flags ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ca := p.file(s.namespace + ".crt")
	args := append([]string{NullWebhook, "-port=" + strconv.Itoa(port), "-ca-file=" + ca}, flags...)
	child, err := devcluster.StartChild(s.name, self, p.w.Dir(), args)
	if err != nil {
		return err
	}
	p.children = append(p.children, child)
	var bundle []byte
	err = await.Poll(ctx, func(context.Context) error {
		bundle, err = os.ReadFile(ca)
		return err
	})
	if err != nil {
		return fmt.Errorf("await the null webhook: %w: %s", err, child.LogTail(5))
	}
	return p.w.CopyRegistration(ctx, s.namespace, port, bundle)
}

// askOurs has ours answer a review, and keeps the patch of the answer.
func (p *pods) askOurs(ctx context.Context, review, patch string) error {
	body, err := os.ReadFile(review)
	if err != nil {
		return err
	}
	//nolint:gosec // G402: it is on this machine, and of our making
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("https://127.0.0.1:%d/mutate", p.ports[0]),
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	var decoded struct{ Response struct{ Patch []byte } }
	if err := json.Unmarshal(answer, &decoded); err != nil || len(decoded.Response.Patch) == 0 {
		return fmt.Errorf("ask for the patch of a Pod: %w: %s", err, answer)
	}
	return os.WriteFile(patch, decoded.Response.Patch, 0o600)
}

// awaitEffect asks with dryRun until a Pod is as it has to be, because nothing announces
// when kube-apiserver has learned of a registration.
func (p *pods) awaitEffect(ctx context.Context, s subject) error {
	p.Progress.Statusf("Pods, awaiting %s", s.name)
	err := await.Poll(ctx, func(ctx context.Context) error {
		mutated, err := s.w.TryPod(ctx, s.namespace)
		if err == nil && mutated != s.mutated {
			err = fmt.Errorf("a Pod has a token volume: %t", mutated)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return nil
}

// stop ends what was started, less the first kube-apiserver.
func (p *pods) stop() error {
	var errs []error
	for _, child := range p.children {
		_, err := child.Stop(time.Second)
		errs = append(errs, err)
	}
	for _, w := range p.besides {
		errs = append(errs, w.Stop())
	}
	return errors.Join(errs...)
}

// NullWebhook is the first argument that makes the command a null webhook.
const NullWebhook = "null-webhook"

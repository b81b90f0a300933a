// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package consistency

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"sa-controller-manager/internal/meta"
	"sa-controller-manager/internal/stateobject"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/ring"
)

const (
	// SecretName is the Secret in kube-system in which each replica publishes its key ring, without the
	// keys. It is a Secret and no ConfigMap because its content decides which replica may sign, and more
	// users may write ConfigMaps. In manifests/permissions, too.
	SecretName = "sa-controller-manager-key-ring"

	// linePrefix is the prefix of a replica's key in the Secret. The other keys are those of Published.
	linePrefix = "replica."

	ringSecret = "secret " + metav1.NamespaceSystem + "/" + SecretName

	// renewal is how often a replica renews its line. One that was not renewed for lineAge is dead, one of
	// forgetAge is removed.
	renewal   = time.Minute
	lineAge   = 5 * time.Minute
	forgetAge = 24 * time.Hour

	// claimAge is how long a generation stays claimed if no ring of it appears.
	claimAge = time.Minute
)

// Published is what the replicas and the commands know of all key rings of a cluster. It contains no key.
type Published struct { //nolint:recvcheck // what changes it has a pointer
	// Lines are those of all replicas, live or not. One without a History cannot be read.
	Lines []Line
	// Removed are the keys that some ring has revoked. It only grows.
	Removed []ring.Removed
	// Followed is since when no host and no kube-apiserver signs with a retired key, by key ID.
	Followed map[string]time.Time
	// Claim keeps two hosts from changing the ring at once.
	Claim Claim
}

// parts are the fields besides the lines, by their keys in the Secret.
func (p *Published) parts() map[string]any {
	return map[string]any{"removed": &p.Removed, "followed": &p.Followed, "claim": &p.Claim}
}

// Line describes the key ring of a replica.
type Line struct {
	// Replica is the name of the line.
	Replica string `json:"-"`
	Host    string `json:"host"`
	// Renewed is when the replica has written it, by its clock.
	Renewed    time.Time `json:"renewed"`
	Generation int64     `json:"generation"`
	// History has the versions of the ring, its own at the end.
	History []string `json:"history"`
	// Changed is when its active or its next key was replaced last.
	Changed time.Time `json:"changed"`
	// Keys are the roles of the keys in the file.
	Keys map[string]signing.Role `json:"keys"`
	// Signs are the keys that it can sign with, and SignsWith the one that it signs with now.
	Signs     []string `json:"signs"`
	SignsWith string   `json:"signsWith"`
	// NextSince is since when it shows the next key wherever it publishes keys, without a break.
	NextSince time.Time `json:"nextSince,omitzero"`
	// Signer is set if the replica signs the tokens of kube-apiserver on that host.
	Signer bool `json:"signer,omitempty"`
}

// Claim names the host that is about to make a generation.
type Claim struct {
	Generation int64     `json:"generation"`
	Host       string    `json:"host"`
	At         time.Time `json:"at"`
}

// LineOf describes a ring.
func LineOf(state ring.State) Line {
	line := Line{Generation: state.Generation, History: state.History, Keys: map[string]signing.Role{}}
	for _, key := range state.Keys {
		line.Keys[key.ID] = key.Role
		for _, at := range []time.Time{key.PublishedAt, key.ActivatedAt} {
			if key.Role != signing.Retired && at.After(line.Changed) {
				line.Changed = at
			}
		}
	}
	return line
}

// key returns the ID of the key with a role, "" if there is none.
func (l Line) key(role signing.Role) string {
	for id, is := range l.Keys {
		if is == role {
			return id
		}
	}
	return ""
}

// version is that of the ring.
func (l Line) version() string {
	if len(l.History) == 0 {
		return ""
	}
	return l.History[len(l.History)-1]
}

// Live returns the lines that were renewed lately. One counts as old only if it is so by our clock and by
// the newest line: one fast clock, ours or that of a host, must not hide the others.
func (p Published) Live(now time.Time) []Line {
	var newest time.Time
	for _, line := range p.Lines {
		if line.Renewed.After(newest) {
			newest = line.Renewed
		}
	}
	if newest.Before(now) {
		now = newest
	}
	return slices.DeleteFunc(slices.Clone(p.Lines), func(line Line) bool { return now.Sub(line.Renewed) > lineAge })
}

// Others is Live without the lines of a host.
func (p Published) Others(host string, now time.Time) []Line {
	return slices.DeleteFunc(p.Live(now), func(line Line) bool { return line.Host == host })
}

// Orders are what the ring of a host is to obey. The ring of a host that is gone counts, too: what it has
// active every host had that lived then.
func (p Published) Orders(own ring.State, host string) ring.Orders {
	orders, newest := ring.Orders{Revoked: p.Removed}, own.Generation
	for _, line := range p.Lines {
		if line.Host != host && relate(own, line) == newer && line.Generation > newest {
			newest, orders.Active = line.Generation, line.key(signing.Active)
		}
	}
	return orders
}

// Read decodes the Secret, which may be nil. What cannot be read is in the error, and the rest is returned.
func Read(secret *corev1.Secret) (Published, error) {
	var p Published
	if secret == nil || len(secret.Data) == 0 {
		return p, nil
	}
	fields, err := stateobject.Read(secret.Data)
	if err != nil {
		return p, fmt.Errorf("%s: %w", ringSecret, err)
	}
	for _, replica := range fields.Between(linePrefix, "") {
		line := Line{Replica: replica}
		if err := json.Unmarshal(fields.Get(linePrefix+replica), &line); err != nil || line.version() == "" {
			line = Line{Replica: replica}
			fields.Damaged(linePrefix+replica, errors.New("it is no published key ring"))
		}
		p.Lines = append(p.Lines, line)
	}
	for key, part := range p.parts() {
		if data := fields.Get(key); len(data) > 0 && json.Unmarshal(data, part) != nil {
			fields.Damaged(key, errors.New("it is not as this program writes it"))
		}
	}
	if damage := fields.Damage(); damage != "" {
		return p, fmt.Errorf("%s: %s: another release wrote it; if its replica is gone for good, remove that line", ringSecret, damage)
	}
	return p, nil
}

// Fetch reads what is published from kube-apiserver.
func Fetch(ctx context.Context, client kubernetes.Interface) (Published, error) {
	live, err := client.CoreV1().Secrets(metav1.NamespaceSystem).Get(ctx, SecretName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Published{}, nil
	}
	if err != nil {
		return Published{}, fmt.Errorf("look up the published key rings, in %s: %w", ringSecret, err)
	}
	return Read(live)
}

// Edit changes what is published, and does so again if another write came between. The Secret comes with
// the manifests; with more permissions it is created.
func Edit(ctx context.Context, client kubernetes.Interface, change func(*Published) error) error {
	secrets := client.CoreV1().Secrets(metav1.NamespaceSystem)
	again := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }
	err := retry.OnError(retry.DefaultRetry, again, func() error {
		secret, err := secrets.Get(ctx, SecretName, metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if missing {
			secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: SecretName}}
		} else if err != nil {
			return err
		}
		p, err := Read(secret)
		if _, unknown := errors.AsType[*stateobject.UnknownVersionError](err); unknown {
			return err
		}
		if err := change(&p); err != nil {
			return err
		}
		before := secret.Data
		if secret.Data, err = p.data(before); err != nil || maps.EqualFunc(before, secret.Data, bytes.Equal) {
			return err
		}
		if missing {
			_, err = secrets.Create(ctx, secret, metav1.CreateOptions{FieldManager: meta.FieldManager})
		} else {
			_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{FieldManager: meta.FieldManager})
		}
		return err
	})
	if _, refused := errors.AsType[*ring.Refusal](err); err == nil || refused {
		return err
	}
	return fmt.Errorf("publish in %s, which comes with manifests/permissions: %w", ringSecret, err)
}

// data returns the data of the Secret. What else was there stays, but for lines that are gone.
func (p *Published) data(before map[string][]byte) (map[string][]byte, error) {
	data := map[string][]byte{}
	maps.Copy(data, before)
	maps.DeleteFunc(data, func(key string, _ []byte) bool { return strings.HasPrefix(key, linePrefix) })
	for _, line := range p.Lines {
		if line.version() == "" {
			data[linePrefix+line.Replica] = before[linePrefix+line.Replica] // another release wrote it
			continue
		}
		encoded, err := json.Marshal(line)
		if err != nil {
			return nil, err
		}
		data[linePrefix+line.Replica] = encoded
	}
	for key, part := range p.parts() {
		encoded, err := json.Marshal(part)
		if err != nil {
			return nil, err
		}
		data[key] = encoded
	}
	return stateobject.Stamp(data), nil
}

// Revoke adds keys that are revoked, and reports whether one was not published yet.
func (p *Published) Revoke(removed []ring.Removed) (added bool) {
	for _, gone := range removed {
		if gone.Reason == ring.Revoked && !slices.Contains(p.Removed, gone) {
			p.Removed, added = append(p.Removed, gone), true
		}
	}
	return added
}

// Revoked reports whether some host has revoked a key.
func (p *Published) Revoked(key signing.PublicKey) bool {
	return slices.ContainsFunc(p.Removed, func(gone ring.Removed) bool { return gone.Is(key) })
}

// ClaimRing keeps other hosts from making the generation that follows on a ring.
func (p *Published) ClaimRing(own ring.State, host string, now time.Time) error {
	next := own.Generation + 1
	if c := p.Claim; c.Generation >= next && c.Host != host && now.Sub(c.At) < claimAge {
		return &ring.Refusal{
			Reason: fmt.Sprintf("generation %d is claimed by host %s since %s", c.Generation, c.Host, c.At.Format(time.RFC3339)),
			Remedy: "one host at a time: bring its ring here, or try again in a minute if it has not changed", Later: true,
		}
	}
	p.Claim = Claim{Generation: next, Host: host, At: now.UTC().Truncate(time.Second)}
	return nil
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokensecret

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"sa-controller-manager/controllers/view"
)

// What this process has done and its watches have not shown yet. All of it may be
// lost at any time: forgetting costs a request that the apiserver refuses. None of it
// is of use once somebody else has led.

// versions remembers from which version of a Secret a write was made, so that the
// same version, which is outdated since, does not cause a second one.
type versions struct {
	mu     sync.Mutex
	before map[cache.ObjectName]string
}

func (v *versions) wrote(secret *view.TokenSecret) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.before == nil {
		v.before = map[cache.ObjectName]string{}
	}
	v.before[nameOf(secret)] = version(secret)
}

// outdated tells whether secret is a version that a write was made from.
func (v *versions) outdated(secret *view.TokenSecret) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, wrote := v.before[nameOf(secret)]
	if wrote && before != version(secret) {
		delete(v.before, nameOf(secret))
		return false
	}
	return wrote
}

func (v *versions) reset() {
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.before)
}

func (v *versions) forget(name cache.ObjectName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.before, name)
}

func version(secret *view.TokenSecret) string {
	return string(secret.UID) + "/" + secret.ResourceVersion
}

// sightings remembers when this process first saw each version of something that waits: of
// a Secret without an account, and of an account, whose versions are its UIDs, with a
// Secret that is to be emptied.
type sightings struct {
	mu    sync.Mutex
	first map[cache.ObjectName]sighting
}

type sighting struct {
	version string
	at      time.Time
}

// since is when this version was first seen, and whether that is now.
func (s *sightings) since(name cache.ObjectName, version string, now time.Time) (first time.Time, isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == nil {
		s.first = map[cache.ObjectName]sighting{}
	}
	if seen, ok := s.first[name]; ok && seen.version == version {
		return seen.at, false
	}
	s.first[name] = sighting{version, now}
	return now, true
}

func (s *sightings) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.first)
}

func (s *sightings) forget(name cache.ObjectName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.first, name)
}

// created remembers the Secret that was just created for an account, until the
// caches show it and the reference to it.
type created struct {
	mu      sync.Mutex
	secrets map[cache.ObjectName]creation
}

type creation struct {
	accountUID types.UID
	secret     string
	referenced bool
	at         time.Time
}

func (c *created) set(account cache.ObjectName, made creation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.secrets == nil {
		c.secrets = map[cache.ObjectName]creation{}
	}
	c.secrets[account] = made
}

// get is what was created for the account with that UID. What was created for an
// earlier account of the name is forgotten.
func (c *created) get(account cache.ObjectName, uid types.UID) (creation, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	made, ok := c.secrets[account]
	if ok && made.accountUID != uid {
		delete(c.secrets, account)
		return creation{}, false
	}
	return made, ok
}

func (c *created) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.secrets)
}

func (c *created) forget(account cache.ObjectName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.secrets, account)
}

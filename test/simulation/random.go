// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"hash/fnv"
	mathrand "math/rand" //nolint:depguard // apimachinery has it
	"math/rand/v2"
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	_ "k8s.io/apimachinery/pkg/util/rand" // likewise
	_ "k8s.io/apimachinery/pkg/util/wait" // likewise
)

// draw returns random numbers of a name.
func draw(seed uint64, name string) *rand.Rand {
	hash := fnv.New64a()
	hash.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, hash.Sum64()))
}

// jitterRand is what apimachinery spreads waits by: of leader election, and of informers after a failure.
//
//go:linkname jitterRand k8s.io/apimachinery/pkg/util/wait.jitterRand
var jitterRand func() float64

// nameRand is what it makes names of: of token Secrets.
//
//go:linkname nameRand k8s.io/apimachinery/pkg/util/rand.rng
var nameRand struct {
	sync.Mutex
	rand *mathrand.Rand
}

// moment has one random number at each moment of a run: whichever goroutine asks first, all get the same.
type moment struct {
	seed  uint64
	began time.Time
}

func (m moment) Int63() int64 { return draw(m.seed, time.Since(m.began).String()).Int64() }

func (moment) Seed(int64) {}

// seedRandom has waits and names be the same in each run of a seed.
func seedRandom(seed uint64, began time.Time) {
	numbers := mathrand.New(moment{seed, began})
	jitterRand = numbers.Float64
	nameRand.Lock()
	defer nameRand.Unlock()
	nameRand.rand = numbers
}

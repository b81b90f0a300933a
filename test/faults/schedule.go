// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"sa-controller-manager/test/faults/checker"
)

// Lane is a sequence of faults, of which one is under way at a time. Lanes run side by
// side.
type Lane string

const (
	// Processes of ours, of kube-apiserver and of etcd.
	Processes Lane = "processes"
	// Requests between our processes and kube-apiserver.
	Requests Lane = "requests"
	// Files that our processes read.
	Files Lane = "files"
	// Registration is of the webhook. It comes last and alone, because how fast it is
	// repaired is promised for healthy watches.
	Registration Lane = "registration"
)

// Planned is one fault of a schedule.
type Planned struct {
	Lane Lane
	Kind checker.Kind
	// At counts from the beginning of the run.
	At, For time.Duration
	// Replica is the one that is struck, where the kind does not say it.
	Replica int
}

// String is one line of the journal.
func (p Planned) String() string {
	return fmt.Sprintf("%6.1fs %-12s %-26s for %.1fs, replica %d", p.At.Seconds(), p.Lane, p.Kind, p.For.Seconds(), p.Replica)
}

// breather is what a lane waits between two faults, at least. Twice that at most.
const breather = 500 * time.Millisecond

// Plan says which faults there are in a run of the given length and when. Equal seeds
// give equal plans. Every kind comes once before any comes twice, and once at least,
// however short the run is.
func Plan(seed uint64, length time.Duration, replicas int, catalogue []Entry) []Planned {
	var plan []Planned
	var longest time.Duration
	for _, lane := range []Lane{Processes, Requests, Files} {
		faults, end := planLane(seed, lane, 0, length, replicas, catalogue)
		plan = append(plan, faults...)
		longest = max(longest, end)
	}
	slices.SortStableFunc(plan, func(a, b Planned) int { return cmp.Compare(a.At, b.At) })
	last, _ := planLane(seed, Registration, longest, longest+length/4, replicas, catalogue)
	return append(plan, last...)
}

// planLane returns a lane's faults and when the last one ends.
func planLane(seed uint64, lane Lane, from, to time.Duration, replicas int, catalogue []Entry) ([]Planned, time.Duration) {
	var kinds []Entry
	repeats := false
	for _, entry := range catalogue {
		if entry.Lane == lane {
			kinds = append(kinds, entry)
			repeats = repeats || !entry.Once
		}
	}
	if len(kinds) == 0 {
		return nil, from
	}
	random := rand.New(rand.NewPCG(seed, hashOf(string(lane))))
	var plan []Planned
	at := from + breather
	for round := 0; round == 0 || repeats && at < to; round++ {
		for _, i := range random.Perm(len(kinds)) {
			if round > 0 && at >= to {
				break
			}
			if round > 0 && kinds[i].Once {
				continue
			}
			length := kinds[i].For + time.Duration(random.Int64N(int64(kinds[i].For/4+1)))
			plan = append(plan, Planned{Lane: lane, Kind: kinds[i].Kind, At: at, For: length, Replica: random.IntN(replicas)})
			at += length + breather + time.Duration(random.Int64N(int64(breather)))
		}
	}
	return plan, at
}

// hashOf has a lane's faults not change when another lane gets a new kind.
func hashOf(text string) uint64 {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(text)) // never fails
	return hash.Sum64()
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"sa-controller-manager/test/faults/checker"
)

var (
	seed    = flag.Uint64("seed", 1, "the first seed")
	seeds   = flag.Uint64("seeds", 40, "how many")
	twice   = flag.Uint64("twice", 60, "how many seeds TestReplay runs again")
	every   = flag.Uint64("step", 0, "run every such seed in this process; 0 has as many processes as there are processors run them")
	shorten = flag.Bool("shorten", true, "drop operations of a failing seed as long as it fails, and print its history")
	until   = flag.String("until", "", "end after the first seed that shows what this regular expression matches")
	hunt    = flag.Uint64("hunt", 0, "look for each plant in that many seeds, and print the first one that finds it")
	against = flag.Bool("upstream", false, "run kube-controller-manager's controllers in place of the product's")
	only    = flag.String("only", "", "numbers of the operations of a seed that happen; all without it")
	unmet   = flag.Uint64("unmet", 0, "print which branches of the controllers that many seeds do not meet")
	follow  = flag.String("follow", "", "the hash of a history, which a failure prints: run a seed until it has that")
	verbose = flag.Bool("history", false, "print the history of each seed, and what the processes log")
)

func TestMain(m *testing.M) {
	flag.Parse()
	klog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil //nolint:reassign // one of them waits, by a clock outside of the bubble
	debug.SetGCPercent(-1)          // a collection changes the order of goroutines; see run
	debug.SetMemoryLimit(1500 << 20)
	rootCA()
	os.Exit(m.Run())
}

var runs int // of this process

// outcome is what a run has shown.
type outcome struct {
	found   []checker.Violation
	history []step
}

// run has a world live in a bubble of its own.
func run(t *testing.T, p *plan) (o outcome) {
	logger := logr.Discard()
	if *verbose {
		logger = textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(4)))
	}
	if runs++; runs%8 == 0 {
		runtime.GC()
	}
	// A queue that gets a key after its end keeps two goroutines, until it is run again: there is no process to end.
	defer func() {
		if r := recover(); r != nil && !strings.Contains(fmt.Sprint(r), "main bubble goroutine has exited but blocked goroutines remain") {
			panic(r)
		}
	}()
	synctest.Test(t, func(*testing.T) {
		w := newWorld(p, logger)
		o.found = append(w.run(), leftGoroutines()...)
		o.history = w.network.history
	})
	return o
}

// ownedByQueues are goroutines of a queue that got a key after its end: there is no process to end.
var ownedByQueues = regexp.MustCompile(`util/workqueue\.\(\*(Typed|delayingType|typed)`)

// leftGoroutines are those of this bubble that go on although all processes have ended.
func leftGoroutines() (found []checker.Violation) {
	synctest.Wait()
	stacks := make([]byte, 4<<20)
	all := strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n")
	bubble := regexp.MustCompile(`synctest bubble \d+\]`).FindString(all[0])
	for _, stack := range all[1:] {
		if strings.Contains(stack, bubble) && !ownedByQueues.MatchString(stack) && !strings.Contains(stack, "testing/synctest.") {
			found = append(found, checker.Violated(10, "a goroutine is left when all have ended:\n%s", stack))
		}
	}
	return found
}

func planOf(seed uint64) *plan {
	p := newPlan(seed)
	p.upstream = *against
	if *only != "" {
		numbers := strings.Split(*only, ",")
		p.operations = slices.DeleteFunc(p.operations, func(o operation) bool { return !slices.Contains(numbers, strconv.Itoa(o.number)) })
	}
	return p
}

// replay runs a plan until it has the history with a hash: of a hundred runs a few have another one.
func replay(t *testing.T, p *plan, wanted string) outcome {
	t.Helper()
	for range 50 {
		if o := run(t, p); wanted == "" || hashOf(o.history) == wanted {
			return o
		}
	}
	t.Fatalf("of 50 runs of seed %d none has the history %s", p.seed, wanted)
	return outcome{}
}

// hashOf names a history, without its reads.
func hashOf(history []step) string {
	hash := fnv.New64a()
	hash.Write([]byte(printed(changes(history))))
	return strconv.FormatUint(hash.Sum64(), 36)
}

// TestSimulation wants all promises kept by all seeds.
func TestSimulation(t *testing.T) {
	if *every == 0 && !*verbose {
		if output := inProcesses(t, *seeds); output != "" {
			t.Errorf("%s", output)
		}
		return
	}
	for at := *seed; at < *seed+*seeds; at += max(1, *every) {
		p := planOf(at)
		o := replay(t, p, *follow)
		if *verbose {
			t.Log(printed(o.history))
		}
		for _, v := range o.found {
			fmt.Printf("seed %d: %v\n", at, v) // at once: a run takes minutes
			t.Fail()
		}
		shows := func(v checker.Violation) bool { return regexp.MustCompile(*until).MatchString(v.String()) }
		if *until != "" && slices.ContainsFunc(o.found, shows) {
			return
		}
		if len(o.found) > 0 && *shorten {
			short, o := shortened(t, p, o)
			t.Errorf("seed %d is left with these operations:\n%s\n%v\nand has this history:\n%s\nAgain: %s",
				at, operationsOf(short), o.found, printed(o.history), short.command(o))
		}
	}
}

// command runs a plan with the history of an outcome again.
func (p *plan) command(o outcome) string {
	var numbers []string
	for _, one := range p.operations {
		numbers = append(numbers, strconv.Itoa(one.number))
	}
	return fmt.Sprintf("go -C test/simulation test -run='^TestSimulation$' . -args -upstream=%t -shorten=false "+
		"-seeds=1 -seed=%d -only=%s -follow=%s", p.upstream, p.seed, strings.Join(numbers, ","), hashOf(o.history))
}

// TestReplay wants the history of a seed again from a run that follows it, whole or with half of the operations, of 19 seeds
// in 20: where dozens of requests wait for a limiter at once, their order is that of goroutines.
func TestReplay(t *testing.T) {
	if *every == 0 {
		output := inProcesses(t, *twice)
		others, failed := strings.Count(output, "none has the history"), strings.Count(output, "--- FAIL: TestReplay/")
		if others > int(*twice/20) || others != failed || failed == 0 && output != "" {
			t.Error(output)
		}
		return
	}
	for at := *seed; at < *seed+*seeds; at += max(1, *every) {
		t.Run(strconv.FormatUint(at, 10), func(t *testing.T) {
			p := planOf(at)
			if at%2 == 0 {
				p.operations = p.operations[len(p.operations)/2:]
			}
			first := run(t, p)
			*only = strings.TrimPrefix(regexp.MustCompile("-only=[0-9,]+").FindString(p.command(first)), "-only=")
			defer func() { *only = "" }()
			if again := replay(t, planOf(at), hashOf(first.history)); len(again.history) == 0 {
				t.Errorf("seed %d has no history", at)
			}
		})
	}
}

// changes are the steps but for reads: the order of goroutines decides how many requests ask the same at once.
func changes(history []step) []step {
	return slices.DeleteFunc(slices.Clone(history), func(s step) bool { return s.Reads })
}

// inProcesses runs this test in processes of one processor each, where goroutines run in an order that is mostly
// the same again. It divides the seeds among them, and returns what those have printed that fail.
func inProcesses(t *testing.T, seeds uint64) string {
	processes := uint64(runtime.NumCPU())
	var mu sync.Mutex
	var printed strings.Builder
	var running sync.WaitGroup
	for i := range min(processes, seeds) {
		running.Go(func() {
			command := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=0",
				fmt.Sprintf("-seed=%d", *seed+i), fmt.Sprintf("-seeds=%d", seeds-i), fmt.Sprintf("-step=%d", processes),
				fmt.Sprintf("-shorten=%t", *shorten), fmt.Sprintf("-upstream=%t", *against), "-only="+*only, "-follow="+*follow)
			command.Env = append(os.Environ(), "GOMAXPROCS=1")
			if output, err := command.CombinedOutput(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintf(&printed, "%v\n%s", err, output)
			}
		})
	}
	running.Wait()
	return printed.String()
}

func printed(history []step) string {
	var lines strings.Builder
	for _, s := range history {
		fmt.Fprintln(&lines, s)
	}
	return lines.String()
}

func operationsOf(p *plan) string {
	var lines strings.Builder
	for _, o := range p.operations {
		fmt.Fprintln(&lines, o)
	}
	return lines.String()
}

// shortened drops operations of a plan as long as the same promise is broken.
func shortened(t *testing.T, p *plan, o outcome) (*plan, outcome) {
	promise := o.found[0].Promise
	for size := len(p.operations) / 2; size > 0; size /= 2 {
		for at := 0; at < len(p.operations); {
			fewer := *p
			fewer.operations = slices.Concat(p.operations[:at], p.operations[min(at+size, len(p.operations)):])
			if again := run(t, &fewer); len(checker.Of(again.found, promise)) > 0 {
				p, o = &fewer, again
			} else {
				at += size
			}
		}
	}
	return p, o
}

// plansOf are the files that decide.
var plansOf = regexp.MustCompile(`/(tokencontroller|serviceaccount|rootca|legacytokencleaner|keyring/reissue)/` +
	`(plan|state|account|secret|orphan|reference|controller|publisher|trustbundle|bundlecontroller|configmap|candidates|act)\.go$`)

// TestUnmet prints the branches of the controllers that no world has met.
func TestUnmet(t *testing.T) {
	if *unmet == 0 {
		t.Skip("run by hand, with -unmet=N for the first N seeds")
	}
	file := filepath.Join(t.TempDir(), "profile")
	covered := exec.Command("go", "test", "-timeout=0", "-covermode=set", "-coverpkg=sa-controller-manager/controllers/...",
		"-coverprofile="+file, "-run=^TestSimulation$", ".", "-args", "-step=1", fmt.Sprintf("-seeds=%d", *unmet), "-shorten=false")
	covered.Env = append(os.Environ(), "GOMAXPROCS=1")
	if output, err := covered.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
	profile, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all, lines := 0, []string(nil)
	for line := range strings.Lines(string(profile)) {
		block := strings.Fields(line)
		file, place, _ := strings.Cut(block[0], ":")
		if !plansOf.MatchString(file) {
			continue
		}
		if all++; block[2] == "0" {
			lines = append(lines, fmt.Sprintf("%s:%s: %s", strings.TrimPrefix(file, "sa-controller-manager/"), place, lineOf(file, place)))
		}
	}
	slices.Sort(lines)
	fmt.Printf("%d of %d branches were met by no world:\n%s\n", len(lines), all, strings.Join(lines, "\n"))
}

// lineOf is the first line of a block that says something.
func lineOf(file, place string) string {
	content, _ := os.ReadFile(filepath.Join("..", "..", strings.TrimPrefix(file, "sa-controller-manager/")))
	from, _, _ := strings.Cut(place, ".")
	at, _ := strconv.Atoi(from)
	if lines := strings.Split(string(content), "\n"); at > 0 && at < len(lines) {
		return strings.TrimSpace(lines[at-1]) + " " + strings.TrimSpace(lines[at])
	}
	return ""
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sa-controller-manager/test/simulation/planted"
)

// plant is a bug in the product's source, or a fix that is taken back.
type plant struct {
	planted.Plant
	// seed is one that finds it, alone or among the nine after it.
	seed uint64
}

// edits are of a file, a text in it and what replaces that, again and again.
func edits(texts ...string) (all []planted.Edit) {
	for edit := range slices.Chunk(texts, 3) {
		all = append(all, planted.Edit{File: edit[0], Search: edit[1], Replace: edit[2]})
	}
	return all
}

var plants = []plant{
	{planted.Plant{Name: "wrong signing key", Shows: regexp.MustCompile(
		`^promise 4: .* no key of the ring has signed its token$`), Edits: edits(
		"tokens/issue.go",
		"return i.sign(ctx, signing.LegacyHeader, claims)", `token, err := i.sign(ctx, signing.LegacyHeader, claims)
	if isPlanted("wrong signing key") && err == nil {
		token = token[:len(token)-12] + "AAAAAAAAAAAA"
	}
	return token, err`,
	)}, 1},
	{planted.Plant{Name: "leader without a fence", Shows: regexp.MustCompile(`^promise 9: .* began \S+ after the renew deadline`),
		Edits: edits(
			"internal/leaderelection/leaderelection.go",
			"defer lock.fence(func() { lost.Store(true); stop(reconcile.ErrAtOnce) })()", `if !isPlanted("leader without a fence") {
					defer lock.fence(func() { lost.Store(true); stop(reconcile.ErrAtOnce) })()
				}`,
			"internal/leaderelection/leaderelection.go",
			"fenced(working, lock.overdue)",
			`fenced(working, func() bool { return !isPlanted("leader without a fence") && lock.overdue() })`,
		)}, 1},
	{planted.Plant{Name: "dropped tombstones", Shows: regexp.MustCompile(`^promise 3: .* references \S+, which is gone$`), Edits: edits(
		"internal/reconcile/watch.go",
		"obj = tombstone.Obj", `if isPlanted("dropped tombstones") {
				return
			}
			obj = tombstone.Obj`,
	)}, 106},
	{planted.Plant{Name: "missing UID precondition", Shows: regexp.MustCompile(
		`^promise 2: delete .* without UID and version as precondition$`), Edits: edits(
		"controllers/tokensecrets/live.go",
		"metav1.DeleteOptions{Preconditions: meta.Preconditions(secret)}",
		"planted(metav1.DeleteOptions{Preconditions: meta.Preconditions(secret)})",
		"controllers/tokensecrets/live.go",
		"// Delete deletes this very version", `func planted(o metav1.DeleteOptions) metav1.DeleteOptions {
	if isPlanted("missing UID precondition") {
		return metav1.DeleteOptions{}
	}
	return o
}

// Delete deletes this very version`,
	)}, 1},
	{planted.Plant{Name: "deletion of what nothing references", Shows: regexp.MustCompile(
		`^promise 1: delete of secrets .* its account lives`), Edits: edits(
		"controllers/tokencontroller/account.go",
		"satisfied, adopt := planAccount(account, secrets)\n",
		`satisfied, adopt := planAccount(account, secrets)
	for _, secret := range secrets {
		referenced := tokensecrets.References(account, secret.Name)
		if isPlanted("deletion of what nothing references") && satisfied && secret.AutoCreated() && !referenced {
			_, _ = tokensecrets.Delete(ctx, c.Client, c.Recorder, secret, "Planted", "nothing references it")
		}
	}
`,
	)}, 1},
	{planted.Plant{Name: "patch that rewrites a list", Shows: regexp.MustCompile(`^promise 3: .* which a user has written$`), Edits: edits(
		"controllers/tokencontroller/account.go",
		"append([]corev1.ObjectReference{{Name: secret}}, account.Secrets...)", "planted(account, secret)",
		"controllers/tokencontroller/account.go",
		"// reference adds the Secret", `func planted(account *corev1.ServiceAccount, secret string) []corev1.ObjectReference {
	list := []corev1.ObjectReference{{Name: secret}}
	if isPlanted("patch that rewrites a list") {
		return list
	}
	return append(list, account.Secrets...)
}

// reference adds the Secret`,
	)}, 1},
	{planted.Plant{Name: "a Secret filled before the first answer about its key", Shows: regexp.MustCompile(
		`^promise 4: .* was filled before kube-apiserver had accepted the key$`), Edits: edits(
		"controllers/keyprobe/prober.go",
		"\tif last.keyID != id {\n",
		"\tif last.keyID != id && !isPlanted(\"a Secret filled before the first answer about its key\") {\n",
	)}, 32},
}

// bug is a plant that seed, or one of the nine after it, finds; those without a seed are for unit tests. shows is a regular
// expression of what is found.
func bug(name string, seed uint64, shows string, texts ...string) plant {
	return plant{planted.Plant{Name: name, Shows: regexp.MustCompile(shows), Edits: edits(texts...)}, seed}
}

// dropped is the bug that a text of a file is not there.
func dropped(name string, seed uint64, shows, file, text string) plant {
	return bug(name, seed, shows, file, text, fmt.Sprintf("if !isPlanted(%q) {\n%s}\n", name, text))
}

// early is the bug that something happens before a text of a file.
func early(name string, seed uint64, shows, what, file, text string) plant {
	return bug(name, seed, shows, file, text, fmt.Sprintf("if isPlanted(%q) {\n%s\n}\n%s", name, what, text))
}

const (
	inAccount   = "controllers/tokencontroller/account.go"
	inSecret    = "controllers/tokencontroller/secret.go"
	inOrphan    = "controllers/tokencontroller/orphan.go"
	inReference = "controllers/tokencontroller/reference.go"
	inPatch     = "controllers/tokencontroller/patch.go"
	inToken     = "controllers/tokencontroller/controller.go"
	inPlan      = "controllers/tokencontroller/plan.go"
	inPublisher = "controllers/rootca/publisher.go"
	inElection  = "internal/leaderelection/leaderelection.go"
)

// bugs were planted in a review of the controllers. Unit tests find those without a seed: of 250 seeds none has found them.
var bugs = []plant{
	bug("recreate", 1, "promise 1: delete of secrets", inAccount,
		"	if satisfied {\n		return c.deleteUnused(ctx, account)\n	}\n	return c.ensureOwn",
		`	if isPlanted("recreate") && satisfied && len(secrets) == 1 && secrets[0].AutoCreated() &&
		account.Annotations["user/note"] != "" {
		_, _ = tokensecrets.Delete(ctx, c.Client, c.Recorder, secrets[0], "Planted", "it is made again")
	}
	if satisfied {
		return c.deleteUnused(ctx, account)
	}
	return c.ensureOwn`),
	bug("cacheorphan", 1, "promise 1: delete of secrets", inOrphan,
		"live, err := meta.LiveAccount(ctx, c.Client, secret.Account())",
		`live, err := meta.CachedAccount(c.accounts, secret.Account()), error(nil)
	if !isPlanted("cacheorphan") {
		live, err = meta.LiveAccount(ctx, c.Client, secret.Account())
	}`),
	bug("nostale", 1, "promise 10: .* after it has had an answer", inSecret,
		"left := c.written.left(secret, c.Clock.Now()); left > 0 {",
		`left := c.written.left(secret, c.Clock.Now()); left > 0 && !isPlanted("nostale") {`),
	bug("nameonly", 1, "promise 2: .* holds a token for UID", "controllers/tokensecrets/tokensecret.go",
		`(s.AccountUID == "" || s.AccountUID == account.UID)`,
		`(s.AccountUID == "" || s.AccountUID == account.UID || isPlanted("nameonly"))`),
	bug("norvref", 1, "promise 2: .* without UID and version", inPatch,
		"}{meta.PatchOf(account), list})", "}{plantedMetadata(account), list})", inPatch,
		"// ReferenceFirst puts", `func plantedMetadata(account *corev1.ServiceAccount) meta.PatchMetadata {
	of := meta.PatchOf(account)
	if isPlanted("norvref") {
		of.ResourceVersion = ""
	}
	return of
}

// ReferenceFirst puts`),
	bug("nosecretsstale", 46, "promise 3: .* references 2 auto-created", inAccount,
		"	left, err := c.secretsStale(ctx, account)\n", `	left, err := time.Duration(0), error(nil)
	if !isPlanted("nosecretsstale") {
		left, err = c.secretsStale(ctx, account)
	}
`),
	bug("unusedkept", 0, "promise 3: .* for nothing, and it is still there", inAccount,
		"made.unused != nil && !tokensecrets", `made.unused != nil && !isPlanted("unusedkept") && !tokensecrets`),
	bug("terminating", 10, "promise 2: .* gone or terminating", inPlan,
		"secret.Terminating() || account.DeletionTimestamp != nil {",
		`secret.Terminating() || account.DeletionTimestamp != nil && !isPlanted("terminating") {`),
	bug("terminatingns", 1, "promise 10: .* again and again", inAccount,
		"case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):",
		`case !isPlanted("terminatingns") && (apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || `+
			`apierrors.IsNotFound(err)):`),
	bug("hot", 4, "promise 10: .* comes", "internal/reconcile/runner.go",
		"	queue.AddAfter(key, delay)\n}", `	if isPlanted("hot") {
		delay = time.Millisecond
	}
	queue.AddAfter(key, delay)
}`, "internal/reconcile/runner.go",
		"	wait := r.backoff.wait(key)\n", `	wait := r.backoff.wait(key)
	if isPlanted("hot") {
		wait = 0
	}
`),
	bug("conflictref", 66, "promise 3: .* which is gone", inReference,
		"	if apierrors.IsNotFound(err) {\n		return nil\n	}\n	if err != nil {\n		return c.refused(",
		`	if apierrors.IsNotFound(err) || isPlanted("conflictref") && apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return c.refused(`),
	bug("userref", 1, "promise 3: .* which a user has written", inReference,
		"case held == nil && (ours || deleted):", `case held == nil && (ours || deleted || isPlanted("userref")):`),
	bug("nolivereference", 45, "promise 3: .* which is there", inReference,
		"lives := there[secret]; !lives {", `lives := there[secret]; !lives || isPlanted("nolivereference") {`),
	dropped("noevent", 5, "promise 1: .* has no Event", "controllers/tokensecrets/live.go",
		"	recorder.Normal(secret.Reference(), reason, \"deleted: \"+why)\n"),
	bug("refbeforecreate", 1, "promise 3: .* which is no Secret of the account", inAccount,
		"	created, err := c.Client.CoreV1()", `	if isPlanted("refbeforecreate") {
		_ = c.reference(ctx, account, name)
	}
	created, err := c.Client.CoreV1()`),
	bug("noduestart", 1, "promise 1: .* is not filled", inToken, "	account := obj.(*corev1.ServiceAccount)\n	if len",
		"account := obj.(*corev1.ServiceAccount)\nif isPlanted(\"noduestart\") {\nreturn false\n}\nif len", inToken,
		"	secret := obj.(*tokensecrets.TokenSecret)\n	account",
		"secret := obj.(*tokensecrets.TokenSecret)\nif isPlanted(\"noduestart\") {\nreturn false\n}\naccount"),
	bug("earlyrelease", 20, "promise 9", inElection,
		"defer context.AfterFunc(ctx, func() { stop(nil) })()", `defer context.AfterFunc(ctx, func() {
					stop(nil)
					if isPlanted("earlyrelease") {
						giveUp()
					}
				})()`),
	bug("worknotawaited", 49, "promise 9", "cmd/sa-controller-manager/app/run.go", "	running.Wait()\n	if cause := context.Cause(ctx)",
		"if !isPlanted(\"worknotawaited\") {\nrunning.Wait()\n}\nif cause := context.Cause(ctx)"),
	bug("noaccountdelete", 23, "promise 1: .* has no account", "controllers/serviceaccount/controller.go",
		"	return cache.ResourceEventHandlerFuncs{DeleteFunc: every.DeleteFunc}", `	if isPlanted("noaccountdelete") {
		return cache.ResourceEventHandlerFuncs{}
	}
	return cache.ResourceEventHandlerFuncs{DeleteFunc: every.DeleteFunc}`),
	dropped("nocreatecheck", 0, "promise 1: .* has no account", "controllers/serviceaccount/controller.go",
		"				c.queue.AddAfter(name, requeueAfter)\n"),
	bug("sharedref", 0, "promise 3: .* which is gone", inPatch,
		"slices.DeleteFunc(slices.Clone(account.Secrets), func", "slices.DeleteFunc(plantedClone(account.Secrets), func", inPatch,
		"func without(", `func plantedClone(list []corev1.ObjectReference) []corev1.ObjectReference {
	if isPlanted("sharedref") {
		return list
	}
	return slices.Clone(list)
}

func without(`),
	early("norequeue", 68, "promise 1: .* is not filled", "return nil", inSecret,
		"		return fmt.Errorf(\"populate token secret %s: %w\", name, errStale)"),
	dropped("leakcreated", 50, "promise 10: .* asks although nothing has changed: delete secrets", inToken, "	c.created.reset()\n"),
	bug("otherns", 16, "promise 2: .* the token is of", inSecret,
		"	if !secret.BelongsTo(account) {\n		return c.syncOrphan", `	if isPlanted("otherns") && account == nil {
		for _, obj := range c.accountInformer.GetIndexer().List() {
			if other := obj.(*corev1.ServiceAccount); other.Name == secret.AccountName {
				account = other
			}
		}
	}
	if !secret.BelongsTo(account) {
		return c.syncOrphan`),
	dropped("leakmaps", 1, "promise 10: .* keeps something", inSecret, "		c.written.forget(name)\n"),
	bug("recreatedaccount", 179, "promise 1: .* references no token Secret", inToken,
		"	queue := handler.DeleteFunc\n", `	queue, update := handler.DeleteFunc, handler.UpdateFunc
	handler.UpdateFunc = func(old, obj any) {
		if !isPlanted("recreatedaccount") || old.(*corev1.ServiceAccount).UID == obj.(*corev1.ServiceAccount).UID {
			update(old, obj)
		}
	}
`),
	bug("nosweep", 13, "promise 3: .* which is gone", inAccount, "if c.mayDangle(account) {",
		`if !isPlanted("nosweep") && c.mayDangle(account) {`),
	bug("leakhandlers", 4, "promise 10: .* handlers", "internal/reconcile/watch.go",
		"defer func() { err = errors.Join(err, h.Informer.RemoveEventHandler(registration)) }()", `defer func() {
			if !isPlanted("leakhandlers") {
				err = errors.Join(err, h.Informer.RemoveEventHandler(registration))
			}
		}()`),
	bug("fillrefused", 9, "promise 4: .* was filled before", "controllers/keyprobe/prober.go",
		"	return cmp.Or(last.refused, last.wait)", `	if isPlanted("fillrefused") {
		return last.wait
	}
	return cmp.Or(last.refused, last.wait)`),
	bug("nocmdelete", 12, "promise 1: .* has no kube-root-ca.crt", inPublisher,
		"	update := handler.UpdateFunc\n", `	update := handler.UpdateFunc
	if isPlanted("nocmdelete") {
		handler.DeleteFunc = nil
	}
`),
	bug("cmnorv", 1, "promise 2: .* without UID and version", inPublisher,
		"	configMap := render(found.ObjectMeta, bundle)\n", `	configMap := render(found.ObjectMeta, bundle)
	if isPlanted("cmnorv") {
		configMap.ResourceVersion = ""
	}
`),
	early("nocatchup", 0, "promise 1: .* references no token Secret", "return nil", inAccount,
		`		return fmt.Errorf("reference token secret %q from service account %s/%s: %w", secret, account.Namespace, `+
			`account.Name, errStale)`),
}

// fixes are taken back, of what attacks and reports of other programs have shown.
var fixes = []plant{
	bug("a GET for each entry", 26, "promise 10: .* requests for namespace", inReference,
		"if len(ask) <= fewReferences {", `if len(ask) <= fewReferences || isPlanted("a GET for each entry") {`, inAccount,
		"tokensecrets.IsName(account.Name, name)) {", `tokensecrets.IsName(account.Name, name) || isPlanted("a GET for each entry")) {`),
	bug("a PATCH for each entry", 26, "promise (3|10): .*forged", inReference, "	names := sets.New(gone...)\n",
		`	if isPlanted("a PATCH for each entry") && len(gone) > 1 {
		for _, one := range gone {
			if err := c.dereference(ctx, account, []string{one}); err != nil {
				return err
			}
		}
		return nil
	}
	names := sets.New(gone...)
`),
	bug("a write that a policy undoes is done", 9, "promise 1: .* is not filled", "internal/meta/meta.go",
		"	if answer.GetUID() == before.GetUID() &&",
		`	if !isPlanted("a write that a policy undoes is done") && answer.GetUID() == before.GetUID() &&`, inSecret,
		"plan.token && patched.Token == nil {",
		`plan.token && patched.Token == nil && !isPlanted("a write that a policy undoes is done") {`, inSecret,
		"	return max(0, uncachedRecheck-now.Sub(at))", `	if isPlanted("a write that a policy undoes is done") {
		return uncachedRecheck
	}
	return max(0, uncachedRecheck-now.Sub(at))`),
	bug("no brake where another client deletes", 43, "promise 10: .* the third one for the account", inAccount,
		"left := c.undone.Delay(string(account.UID)); left > 0 {",
		`left := c.undone.Delay(string(account.UID)); left > 0 && !isPlanted("no brake where another client deletes") {`),
	bug("all caches before anything", 22, "promise 10: namespace unlisted has no", "cmd/sa-controller-manager/app/run.go",
		"if !m.informers.Await(ctx, informers.Namespaces, informers.Accounts) {",
		`if !m.informers.Await(ctx, informers.Namespaces, informers.Accounts) ||
			isPlanted("all caches before anything") && !m.informers.Await(ctx) {`),
	bug("no brake for root CAs", 4, "promise 10: .* configmaps/", "controllers/rootca/source.go",
		"	return s.damping.Delay(s.written(target{resource, object}))", `	if isPlanted("no brake for root CAs") {
		return 0
	}
	return s.damping.Delay(s.written(target{resource, object}))`, inPublisher,
		"\tif !kept {\n\t\treturn fmt.Errorf(",
		"\tif !kept && !isPlanted(\"no brake for root CAs\") {\n\t\treturn fmt.Errorf("),
	early("a request each second while a watch hangs", 0, "promise 10",
		"c.secretLoop.AddAfter(secret.ObjectName(), time.Second)\nreturn nil", inOrphan,
		"		return fmt.Errorf(\"delete token secret %s: %w\", secret.ObjectName(), errStale)"),
	bug("no overlap", 10, "promise 1: .* it has the new root CA alone", "controllers/rootca/state.go",
		"		case overlap <= 0, old && over:", `		case isPlanted("no overlap"), overlap <= 0, old && over:`),
	early("a previous ClusterTrustBundle stays", 10, "promise 1: .* ClusterTrustBundles", "return nil",
		"controllers/rootca/trustbundle.go", "	return p.delete(ctx, previous)\n}"),
	bug("the opt-out from the cleaner is ignored", 3, "promise 1: .*marked-to-keep", "controllers/legacytokencleaner/plan.go",
		"	case o.secret.Keep:", `	case o.secret.Keep && !isPlanted("the opt-out from the cleaner is ignored"):`),
	bug("no time between mark and deletion", 3, "promise 1: .* want marked", "controllers/legacytokencleaner/plan.go",
		"		return mark // also", `		if isPlanted("no time between mark and deletion") {
			return remove
		}
		return mark // also`),
	bug("tokens of revoked keys stay", 8, "promise 4: .* its key is revoked", inPlan,
		"secret.Token == nil || revoked(secret, account, keys),",
		`secret.Token == nil || !isPlanted("tokens of revoked keys stay") && revoked(secret, account, keys),`),
	bug("two successors", 0, "promise 3", "controllers/keyring/reissue/plan.go",
		"	case Progress{State: Switching}:", `	case Progress{State: Filling}:
		return create, isPlanted("two successors")
	case Progress{State: Switching}:`),
}

// TestPlanted wants each plant found by the seeds that are known to find it, and nothing found by them without it.
func TestPlanted(t *testing.T) {
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var all []planted.Plant
	for _, plant := range slices.Concat(plants, bugs, fixes) {
		all = append(all, plant.Plant)
	}
	file, err := planted.Overlay(root, dir, all)
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "planted.test")
	if output, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay="+file, "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the plants: %v\n%s", err, output)
	}
	from := func(seed, seeds uint64, plant plant) string {
		command := exec.Command(binary, "-test.run=^TestSimulation$", "-test.timeout=0", fmt.Sprintf("-seed=%d", seed),
			fmt.Sprintf("-seeds=%d", seeds), "-step=1", "-shorten=false", "-until="+plant.Shows.String())
		command.Env = append(os.Environ(), planted.Variable+"="+plant.Name, "GOMAXPROCS=1")
		output, _ := command.CombinedOutput()
		return string(output)
	}
	without := map[uint64]bool{}
	for _, plant := range slices.Concat(plants, bugs, fixes) {
		if *hunt > 0 {
			t.Run(plant.Name, func(t *testing.T) {
				t.Parallel()
				fmt.Printf("%s: %s\n", plant.Name, plant.found(from(*seed, *hunt, plant)))
			})
			continue
		}
		if plant.seed == 0 {
			continue
		}
		t.Run(plant.Name, func(t *testing.T) {
			t.Parallel()
			var output string
			for range 3 { // a few runs of a seed have another history
				if output = from(plant.seed, 10, plant); plant.found(output) != "" {
					return
				}
			}
			t.Errorf("from seed %d on it is not found:\n%s", plant.seed, output)
		})
		if without[plant.seed] {
			continue
		}
		without[plant.seed] = true
		t.Run(fmt.Sprintf("no plant from seed %d on", plant.seed), func(t *testing.T) {
			t.Parallel()
			if output := from(plant.seed, 10, noPlant); !strings.HasPrefix(output, "PASS") {
				t.Errorf("something is found:\n%s", output)
			}
		})
	}
}

var noPlant = plant{Plant: planted.Plant{Shows: regexp.MustCompile(`\z.`)}}

// found returns the line that shows the plant.
func (p plant) found(output string) string {
	for line := range strings.Lines(output) {
		if at := strings.Index(line, "promise "); at >= 0 && p.Shows.MatchString(strings.TrimSpace(line[at:])) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

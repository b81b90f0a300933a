// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/signertest"
)

// reports awaits words in the file for the readiness probe; without any, that there is no such file.
func (s *signer) reports(t *testing.T, words ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%q for the readiness probe", words), func() error {
		content, err := os.ReadFile(filepath.Join(s.sockets, "not-served"))
		if len(words) == 0 && !os.IsNotExist(err) {
			return fmt.Errorf("the file is there: %q, %w", content, err)
		}
		for _, word := range words {
			if !strings.Contains(string(content), word) {
				return fmt.Errorf("%q is not in %q", word, content)
			}
		}
		return nil
	})
}

// signs makes one signature, which has to come at once.
func (s *signer) signs(t *testing.T, name string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, _, err := s.connect(t, name).Sign(ctx, signing.JWTHeader, signertest.Payload(0))
	return err
}

// ends wants SIGTERM to be enough, well within the 30 s of the kubelet.
func (s *signer) ends(t *testing.T) {
	t.Helper()
	exit, err := s.Stop(15 * time.Second)
	if err != nil || exit.Code != 0 {
		t.Errorf("SIGTERM ended it with %+v, %v", exit, err)
	}
}

// gone awaits the end of a socket.
func (s *signer) gone(t *testing.T, name string) {
	t.Helper()
	eventually(t, "the end of the socket of "+name, func() error {
		if _, err := os.Lstat(filepath.Join(s.sockets, name+".sock")); !os.IsNotExist(err) {
			return fmt.Errorf("the socket is there: %w", err)
		}
		return nil
	})
}

// logs awaits words in the log: a reason that has gone may be gone from the file, too.
func (s *signer) logs(t *testing.T, words string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%q in the log", words), func() error {
		if text := s.Logs(); !strings.Contains(text, words) {
			return errors.New(text)
		}
		return nil
	})
}

// end sends a signal to the process of a key.
func (s *signer) end(t *testing.T, signal syscall.Signal, task, name string) {
	t.Helper()
	eventually(t, "the process of "+name, func() error {
		out, err := exec.CommandContext(t.Context(), "pgrep", "-P", strconv.Itoa(s.PID()), "-f", " -- "+task+" "+name).Output()
		if err != nil {
			return err
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
		return errors.Join(err, syscall.Kill(pid, signal))
	})
}

// has awaits the size of a file.
func has(t *testing.T, file string, bytes int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d bytes in %s", bytes, file), func() error {
		if got, err := os.ReadFile(file); err != nil || len(got) != bytes {
			return fmt.Errorf("%d bytes, %w", len(got), err)
		}
		return nil
	})
}

// TestKeysDirIsAway: what cannot be read takes nothing away, and is reported.
func TestKeysDirIsAway(t *testing.T) {
	t.Parallel()
	hsm, keys := newToken(t), filepath.Join(t.TempDir(), "keys")
	testutil.Must(t, os.Mkdir(keys, 0o700))
	nameKey(t, keys, "here", hsm.make(t, "here", "P-256"), "P-256")
	s := serve(t, keys, pin)
	s.pin(t, "here")
	for name, instead := range map[string]func(){"nothing is there": func() {}, "a file is there": func() { write(t, keys, "") }} {
		testutil.Must(t, os.Rename(keys, keys+".old"))
		instead()
		s.reports(t, "--keys-dir: ", "the keys that are served stay")
		testutil.CheckError(t, name, "", s.signs(t, "here"))
		testutil.Must(t, errors.Join(os.RemoveAll(keys), os.Rename(keys+".old", keys)))
		s.reports(t)
	}
}

// TestSecondProcess has one process for each directory of sockets: two would write each other's file for the probe.
func TestSecondProcess(t *testing.T) {
	t.Parallel()
	hsm, keys := newToken(t), t.TempDir()
	nameKey(t, keys, "here", hsm.make(t, "here", "P-256"), "P-256")
	s := serve(t, keys, pin)
	s.pin(t, "here")
	second := exec.CommandContext(t.Context(), binary, "serve", "--keys-dir="+keys, "--socket-dir="+s.sockets)
	if out, err := second.CombinedOutput(); err == nil || !strings.Contains(string(out), "no other sa-kms-signer uses") {
		t.Errorf("the second process: %v: %s", err, out)
	}
	s.reports(t)
	testutil.Must(t, s.signs(t, "here"))
}

// TestModuleWaits: a call of a PKCS#11 module that does not return costs its own key alone, is reported, and does not
// keep the process from ending.
func TestModuleWaits(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		function int
		opened   bool // before it begins to wait
	}{{"Login", fnLogin, false}, {"FirstSignature", fnSign, false}, {"LaterSignatures", fnSign, true}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			hsm, bao, keys := newToken(t), newVault(t), t.TempDir()
			library, wait := waiting(t, tc.function, false)
			nameKey(t, keys, "good", makeTransit(t, bao, "good", "P-256"), "P-256")
			nameKey(t, keys, "stuck", strings.Replace(hsm.make(t, "stuck", "P-256"), module, library, 1), "P-256")
			if tc.opened {
				testutil.Must(t, os.Remove(wait))
			}
			s := serve(t, keys, pin)
			s.pin(t, "good")
			if tc.opened {
				s.pin(t, "stuck")
				write(t, wait, "")
				for range 20 { // more than may be asked at a time
					go func() { _ = s.signs(t, "stuck") }()
				}
				s.reports(t, "key stuck ", "the backend has not answered for 5s")
			} else {
				s.reports(t, "key stuck ", "the backend has not answered for 20s")
			}
			nameKey(t, keys, "bad", "nonsense:", "P-256")
			s.reports(t, "key bad ", "key stuck ")
			nameKey(t, keys, "later", makeTransit(t, bao, "later", "P-256"), "P-256")
			s.pin(t, "later")
			testutil.Must(t, os.Remove(filepath.Join(keys, "good.yaml")))
			s.gone(t, "good")
			if tc.opened { // the module answers again
				testutil.Must(t, errors.Join(os.Remove(wait), os.Remove(filepath.Join(keys, "bad.yaml"))))
				s.reports(t)
				write(t, wait, "")
				_ = s.signs(t, "stuck")
				testutil.Must(t, os.Remove(filepath.Join(keys, "stuck.yaml")))
				s.gone(t, "stuck")
			}
			s.ends(t)
			testutil.Must(t, os.RemoveAll(wait))
		})
	}
}

// TestSignatureIsLost: a call that never returns ends the process, also when later ones are answered.
func TestSignatureIsLost(t *testing.T) {
	t.Parallel()
	hsm, keys := newToken(t), t.TempDir()
	library, wait := waiting(t, fnSign, true)
	nameKey(t, keys, "lossy", strings.Replace(hsm.make(t, "lossy", "P-256"), module, library, 1), "P-256")
	testutil.Must(t, os.Remove(wait))
	s := serve(t, keys, pin)
	s.pin(t, "lossy")
	write(t, wait, "")
	go func() { _ = s.signs(t, "lossy") }()
	has(t, wait, 1)
	testutil.Must(t, os.Remove(wait))
	s.logs(t, "the backend has not answered for 5s")
	eventually(t, "a signature", func() error { return s.signs(t, "lossy") })
	s.reports(t)
}

// TestSlowLibrary: one that makes a signature at a time is asked for as many as it makes while their callers wait. It is
// busy, and not dead.
func TestSlowLibrary(t *testing.T) {
	t.Parallel()
	hsm, keys := newToken(t), t.TempDir()
	nameKey(t, keys, "slow", strings.Replace(hsm.make(t, "slow", "P-256"), module, compile(t, "slow.c"), 1), "P-256")
	s := serve(t, keys, pin)
	s.pin(t, "slow")
	remote := s.connect(t, "slow")
	ctx, stop := context.WithTimeout(t.Context(), 16*time.Second)
	defer stop()
	var callers sync.WaitGroup
	var signed atomic.Int32
	for range 20 {
		callers.Go(func() {
			for ctx.Err() == nil {
				if _, _, err := remote.Sign(ctx, signing.JWTHeader, signertest.Payload(0)); err == nil {
					signed.Add(1)
				}
			}
		})
	}
	callers.Wait()
	got := signed.Load()
	if t.Logf("20 callers had %d tokens in 16 s", got); got < 15 { // of the 40 that it can make, probes among them
		t.Error("want 15 at least")
	}
	if logs := s.Logs(); strings.Contains(logs, "has not answered") {
		t.Errorf("its process was replaced: %s", logs)
	}
}

// TestLibraryForks: a process that a library has started, and which keeps the files of the one that has died, keeps neither
// the key from being served again nor sa-kms-signer from ending.
func TestLibraryForks(t *testing.T) {
	t.Parallel()
	hsm, keys := newToken(t), t.TempDir()
	nameKey(t, keys, "forks", strings.Replace(hsm.make(t, "forks", "P-256"), module, forking(t), 1), "P-256")
	s := serve(t, keys, pin)
	s.pin(t, "forks")
	s.end(t, syscall.SIGKILL, "serve", "forks")
	s.logs(t, "key forks: its process: signal: killed")
	eventually(t, "a signature", func() error { return s.signs(t, "forks") })
	s.reports(t)
	s.ends(t)
}

// TestProcessIsEnded: a process that another one ends has proved nothing, and its key is reported.
func TestProcessIsEnded(t *testing.T) {
	t.Parallel()
	hsm, keys := newToken(t), t.TempDir()
	library, wait := waiting(t, fnLogin, false)
	uri := strings.Replace(hsm.make(t, "here", "P-256"), module, library, 1)
	nameKey(t, keys, "here", uri, "P-256")
	testutil.Must(t, os.Remove(wait))
	s := serve(t, keys, pin)
	s.pin(t, "here")
	write(t, wait, "")
	s.end(t, syscall.SIGTERM, "serve", "here")
	s.reports(t, "key here: the key is being opened")
	has(t, wait, 1)
	testutil.Must(t, os.Remove(wait))
	s.reports(t)
	write(t, wait, "")
	nameKey(t, keys, "here", uri, "P-384")
	has(t, wait, 1)
	s.end(t, syscall.SIGTERM, "check", "here")
	testutil.Must(t, os.Remove(wait))
	s.reports(t, "key here ", "the key is P-256, and P-384 is asked for")
	testutil.CheckError(t, "the key of the previous file", "", s.signs(t, "here"))
}

// TestSocketIsReplaced reports a key that signs, and whose socket is another file.
func TestSocketIsReplaced(t *testing.T) {
	t.Parallel()
	hsm, keys := newToken(t), t.TempDir()
	nameKey(t, keys, "here", hsm.make(t, "here", "P-256"), "P-256")
	s := serve(t, keys, pin)
	s.pin(t, "here")
	socket := filepath.Join(s.sockets, "here.sock")
	testutil.Must(t, errors.Join(os.Remove(socket), os.MkdirAll(filepath.Join(socket, "full"), 0o700)))
	s.reports(t, "key here ", "external signer socket "+socket)
	testutil.Must(t, os.RemoveAll(socket))
	s.reports(t)
	testutil.Must(t, s.signs(t, "here"))
}

// TestLinkToNothing reports the file of a key that is listed and cannot be read.
func TestLinkToNothing(t *testing.T) {
	t.Parallel()
	keys := t.TempDir()
	link := filepath.Join(keys, "linked.yaml")
	testutil.Must(t, os.Symlink("/none", link))
	s := serve(t, keys)
	s.reports(t, "key linked: open "+link+": no such file")
	testutil.Must(t, os.Remove(link))
	s.reports(t)
}

// TestRefusalIsNotHeard: a PIN that a token may have refused is tried once more, and not each time that a process ends.
func TestRefusalIsNotHeard(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, after, first string }{
		{"LibraryDies", "abort()", "its process: "},
		{"AnswerIsLate", "pause()", "the backend has not answered for 20s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			hsm, keys, sockets := newToken(t), t.TempDir(), t.TempDir()
			library, attempts := counting(t, tc.after)
			wrong := write(t, filepath.Join(t.TempDir(), "pin"), "wrong")
			nameKey(t, keys, "one", strings.NewReplacer(module, library, hsm.pinFile, wrong).Replace(hsm.make(t, "one", "P-256")), "P-256")
			s := serveOn(t, keys, sockets, pin)
			s.reports(t, "key one", tc.first)
			refused := filepath.Join(sockets, "refused-pins")
			for range 2 {
				s.reports(t, "key one ", "and may have refused the PIN in "+wrong, refused+" is emptied")
				has(t, attempts, 2)
				s.ends(t)
				s = serveOn(t, keys, sockets, pin) // which remembers
			}
			testutil.Must(t, os.RemoveAll(refused))
			has(t, attempts, 3)
		})
	}
}

// TestOneTokenHasTwoNames wants one attempt for a wrong PIN, however URIs name the token and the module.
func TestOneTokenHasTwoNames(t *testing.T) {
	t.Parallel()
	hsm, keys := newToken(t), t.TempDir()
	library, attempts := counting(t, "")
	link := filepath.Join(t.TempDir(), "link.so")
	testutil.Must(t, os.Symlink(library, link))
	list := testutil.Get(exec.CommandContext(t.Context(), "pkcs11-tool", "--module", module, "--list-token-slots").Output())(t)
	serial := regexp.MustCompile(`(?s)token label +: ` + hsm.label + `\n.*?serial num +: (\w+)`).FindStringSubmatch(string(list))
	if serial == nil {
		t.Fatalf("no serial number of %s in %s", hsm.label, list)
	}
	wrong := write(t, filepath.Join(t.TempDir(), "pin"), "wrong")
	uri := strings.NewReplacer(module, library, hsm.pinFile, wrong).Replace(hsm.make(t, "one", "P-256"))
	nameKey(t, keys, "label", uri, "P-256")
	nameKey(t, keys, "serial", strings.Replace(uri, "token="+hsm.label, "serial="+serial[1], 1), "P-256")
	nameKey(t, keys, "link", strings.Replace(uri, library, link, 1), "P-256")
	s := serve(t, keys, pin)
	refused := ": the token refuses the PIN"
	s.reports(t, "key label ", "key serial ", "key link ", refused)
	eventually(t, "three refusals", func() error {
		if text := s.notServed(t); strings.Count(text, refused) != 3 {
			return errors.New(text)
		}
		return nil
	})
	has(t, attempts, 1)
}

// TestFilesCannotBeWritten: what the probe must know is written as soon as it can be, and no PIN is tried while a refusal
// could not be remembered.
func TestFilesCannotBeWritten(t *testing.T) {
	t.Parallel()
	hsm, keys, sockets := newToken(t), t.TempDir(), t.TempDir()
	library, attempts := counting(t, "")
	wrong := write(t, filepath.Join(t.TempDir(), "pin"), "wrong")
	nameKey(t, keys, "one", strings.NewReplacer(module, library, hsm.pinFile, wrong).Replace(hsm.make(t, "one", "P-256")), "P-256")
	probe, refused := filepath.Join(sockets, "not-served"), write(t, filepath.Join(sockets, "refused-pins"), "no directory")
	testutil.Must(t, os.MkdirAll(filepath.Join(probe, "full"), 0o700))
	s := serveOn(t, keys, sockets, pin)
	eventually(t, "both errors in the log", func() error {
		for _, file := range []string{"rename " + probe, "open " + refused + "/"} {
			if !strings.Contains(s.Logs(), file) {
				return errors.New(s.Logs())
			}
		}
		return nil
	})
	has(t, attempts, 0)
	testutil.Must(t, os.RemoveAll(probe))
	s.reports(t, "key one ", "open "+refused)
	testutil.Must(t, os.Remove(refused))
	s.reports(t, "key one ", "the token refuses the PIN")
	has(t, attempts, 1)
	remembered, err := os.ReadDir(refused)
	if testutil.Must(t, err); len(remembered) != 1 {
		t.Errorf("%d PINs are remembered, want 1", len(remembered))
	}
}

// TestTokenComesBack has two keys in one token, as an active key and its spare: after an outage the one that is used
// signs again though nobody uses the other. A refused PIN after it is reported, and costs one attempt.
//
// It runs alone: the HSM that is removed is another test's, too.
func TestTokenComesBack(t *testing.T) {
	kill := startRemote(t)
	hsm, keys := newToken(t), t.TempDir()
	for _, name := range []string{"active", "spare"} {
		nameKey(t, keys, name, strings.Replace(hsm.make(t, name, "P-256"), module, client(t), 1), "P-256")
	}
	s := serve(t, keys, pin)
	s.pin(t, "active")
	s.pin(t, "spare")
	testutil.Must(t, kill())
	if s.signs(t, "active") == nil {
		t.Error("a key signs without its token")
	}
	s.reports(t, "key active ", "key spare ", ": open token: ")
	kill = startRemote(t)
	eventually(t, "a signature", func() error { return s.signs(t, "active") })
	s.reports(t)

	write(t, hsm.pinFile, "wrong")
	testutil.Must(t, kill())
	kill = startRemote(t)
	_ = s.signs(t, "active")
	s.reports(t, "key active ", "the token refuses the PIN in "+hsm.pinFile)
	write(t, hsm.pinFile, pin)
	s.reports(t)
	testutil.Must(t, s.signs(t, "active"))
	testutil.Must(t, kill())
}

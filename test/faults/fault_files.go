// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sa-controller-manager/test/faults/checker"
	"sa-controller-manager/test/faults/workload"
)

// errSkipped is of a fault that needs root.
var errSkipped = errors.New("only root may mount a file system")

// fullDisk has a command that writes a key ring find no room.
func fullDisk(ctx context.Context, w *World, _ Planned) (func(context.Context) error, error) {
	return w.disk(ctx, "full", "no space left on device", func(dir string) error {
		file, err := os.Create(filepath.Join(dir, "filler"))
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // nothing more fits into it
		for err == nil {
			_, err = file.Write(make([]byte, 512))
		}
		return workload.Ignore(err, func(err error) bool { return errors.Is(err, unix.ENOSPC) })
	})
}

// readOnlyDisk has it find a file system that nobody may write to.
func readOnlyDisk(ctx context.Context, w *World, _ Planned) (func(context.Context) error, error) {
	return w.disk(ctx, "read-only", "is read-only here (its file system is)", func(dir string) error {
		return os.NewSyscallError("mount", unix.Mount("", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	})
}

// disk makes a key ring on a small file system of its own, spoils that, and has the next key
// replaced: the command must fail, say why in these words and where, and change no file.
func (w *World) disk(ctx context.Context, how, words string, spoil func(dir string) error) (func(context.Context) error, error) {
	mount, err := os.MkdirTemp(w.cluster.Dir(), "disk-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=64k"); err != nil {
		if errors.Is(err, unix.EPERM) {
			return nil, errSkipped
		}
		return nil, os.NewSyscallError("mount", err)
	}
	unmount := func(context.Context) error { return os.NewSyscallError("umount", unix.Unmount(mount, 0)) }
	if err := w.replaceKeyOn(ctx, mount, how, words, spoil); err != nil {
		return nil, errors.Join(err, unmount(ctx))
	}
	return unmount, nil
}

func (w *World) replaceKeyOn(ctx context.Context, mount, how, words string, spoil func(dir string) error) error {
	dir := filepath.Join(mount, "keys")
	program := w.all()[0].binary.Path
	flag := "--service-account-key-ring=" + filepath.Join(dir, "ring.json")
	init := exec.CommandContext(ctx, program, "keys", "init", flag, "--from-private-key-file="+w.cluster.SigningKeyFile())
	if output, err := init.CombinedOutput(); err != nil {
		return fmt.Errorf("keys init: %w\n%s", err, output)
	}
	before, err := filesBelow(dir)
	if err != nil {
		return err
	}
	if err := spoil(mount); err != nil {
		return err
	}
	output, err := exec.CommandContext(ctx, program, "keys", "next", flag, "--algorithm=P-256").CombinedOutput()
	after, readErr := filesBelow(dir)
	if readErr != nil {
		return readErr
	}
	for _, what := range judgeRefusal(err == nil, string(output), words, dir, before, after) {
		w.report(checker.Violated(7, "disk-%s: keys next %s", how, what))
	}
	return nil
}

// judgeRefusal says what is wrong with a command that has to refuse: it must fail, name the
// directory and say why in these words, and leave the directory as it was.
func judgeRefusal(succeeded bool, output, words, dir string, before, after map[string]string) []string {
	var wrong []string
	if succeeded {
		wrong = append(wrong, "says that all is well: "+output)
	}
	for _, want := range []string{words, dir} {
		if !strings.Contains(output, want) {
			wrong = append(wrong, fmt.Sprintf("does not say %q: %s", want, output))
		}
	}
	if !maps.Equal(before, after) {
		wrong = append(wrong, fmt.Sprintf("has not left the files as they were: %q before, %q now", slices.Sorted(maps.Keys(before)),
			slices.Sorted(maps.Keys(after))))
	}
	return wrong
}

// filesBelow are all files below dir, with what each holds.
func filesBelow(dir string) (map[string]string, error) {
	all := map[string]string{}
	below := os.DirFS(dir)
	err := fs.WalkDir(below, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		all[name] = entry.Type().String()
		if !entry.Type().IsRegular() {
			return nil
		}
		content, err := fs.ReadFile(below, name)
		all[name] += string(content)
		return err
	})
	return all, err
}

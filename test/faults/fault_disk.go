// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// fullDisk has the commands that write a key directory find no room.
func fullDisk(ctx context.Context, w *World, _ Planned) (func(context.Context) error, error) {
	return w.disk(ctx, "full", func(dir string) error {
		file, err := os.Create(filepath.Join(dir, "filler"))
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }() // nothing more fits into it
		for {
			if _, err := file.Write(make([]byte, 512)); err != nil {
				return nil // it is full
			}
		}
	})
}

// readOnlyDisk has them find a file system that nobody may write to.
func readOnlyDisk(ctx context.Context, w *World, _ Planned) (func(context.Context) error, error) {
	return w.disk(ctx, "read-only", func(dir string) error {
		return os.NewSyscallError("mount", unix.Mount("", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	})
}

// disk makes a key directory on a small file system of its own, spoils that, and has a
// rotation begin: it must fail, say why, and leave every file as it was.
func (w *World) disk(ctx context.Context, how string, spoil func(dir string) error) (func(context.Context) error, error) {
	mount, err := os.MkdirTemp(w.cluster.Dir(), "disk-")
	if err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=64k"); err != nil {
		if errors.Is(err, unix.EPERM) {
			return nil, skippedError{"only root may mount a file system"}
		}
		return nil, os.NewSyscallError("mount", err)
	}
	unmount := func(context.Context) error { return os.NewSyscallError("umount", unix.Unmount(mount, 0)) }
	if err := w.rotateOn(ctx, mount, how, spoil); err != nil {
		return nil, errors.Join(err, unmount(ctx))
	}
	return unmount, nil
}

func (w *World) rotateOn(ctx context.Context, mount, how string, spoil func(dir string) error) error {
	dir := filepath.Join(mount, "keys")
	program := w.all()[0].binary.Path
	flag := "--service-account-keys-dir=" + dir
	init := exec.CommandContext(ctx, program, "keys", "init", flag, "--from-private-key-file="+w.cluster.SigningKeyFile())
	if output, err := init.CombinedOutput(); err != nil {
		return fmt.Errorf("keys init: %w\n%s", err, output)
	}
	before, err := contents(dir)
	if err != nil {
		return err
	}
	if err := spoil(mount); err != nil {
		return err
	}
	output, err := exec.CommandContext(ctx, program, "keys", "rotate", "start", flag, "--algorithm=P-256").CombinedOutput()
	after, readErr := contents(dir)
	if readErr != nil {
		return readErr
	}
	if err == nil {
		w.report(violated(7, "disk-%s: keys rotate start says that all is well: %s", how, output))
	}
	if len(bytes.TrimSpace(output)) == 0 {
		w.report(violated(7, "disk-%s: keys rotate start does not say what is wrong", how))
	}
	for name, content := range before {
		if !bytes.Equal(content, after[name]) {
			w.report(violated(7, "disk-%s: keys rotate start has changed %s", how, name))
		}
	}
	return nil
}

func contents(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	all := map[string][]byte{}
	for _, entry := range entries {
		if !entry.Type().IsRegular() || entry.Name() == ".lock" {
			continue // that one says who was there
		}
		if all[entry.Name()], err = os.ReadFile(filepath.Join(dir, entry.Name())); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/signertest"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

const (
	// What make demo-hsm sets.
	helperVariable  = "SACM_KMS_SIGNER"
	transitVariable = "SACM_TRANSIT"

	softHSM      = "/usr/lib/softhsm/libsofthsm2.so"
	pin          = "41253"
	foreignKeyID = "somebody-else/2026"
)

// keyHolders are what has keys outside of the ring: SoftHSM and a transit engine behind
// sa-kms-signer, and a signer of another make.
type keyHolders struct {
	dir        string
	children   []*devcluster.Child
	foreign    *signertest.Foreign
	transitURI string
}

func (h *keyHolders) path(name string) string { return filepath.Join(h.dir, name) }

func (h *keyHolders) socket(name string) string { return h.path("run/" + name + ".sock") }

// begin starts them. Their keys are made later.
func (h *keyHolders) begin(ctx context.Context, dir string) error {
	h.dir = dir
	sockets := []byte("schemaVersion: 1\nsockets:\n")
	for _, name := range []string{"imported", "made", "transit", "foreign"} {
		sockets = fmt.Appendf(sockets, "  %s: %s\n", name, h.socket(name))
	}
	for _, name := range []string{"tokens", "keys", "run", "transit"} {
		if err := os.MkdirAll(h.path(name), 0o700); err != nil {
			return err
		}
	}
	if err := errors.Join(
		os.WriteFile(h.path("sockets.yaml"), sockets, 0o600),
		os.WriteFile(h.path("pin"), []byte(pin), 0o600),
		os.WriteFile(h.path("softhsm2.conf"), fmt.Appendf(nil, "directories.tokendir = %s\nlog.level = ERROR\n", h.path("tokens")), 0o600),
		os.Setenv("SOFTHSM2_CONF", h.path("softhsm2.conf")),
	); err != nil {
		return err
	}
	if _, err := output(ctx, "softhsm2-util", "--init-token", "--free", "--label", "demo", "--pin", pin, "--so-pin", pin); err != nil {
		return err
	}
	for variable, args := range map[string][]string{
		transitVariable: {h.path("transit")}, helperVariable: {"serve", "--keys-dir=" + h.path("keys"), "--socket-dir=" + h.path("run")},
	} {
		path := os.Getenv(variable)
		child, err := devcluster.StartChild(filepath.Base(path), path, h.dir, args)
		if err != nil {
			return fmt.Errorf("%s, which make demo-hsm sets: %w", variable, err)
		}
		h.children = append(h.children, child)
	}
	key, err := signing.GenerateKey("P-256")
	if err != nil {
		return err
	}
	if h.foreign, err = signertest.NewForeign(h.socket("foreign"), foreignKeyID, key.PEM()); err != nil {
		return err
	}
	return await.Poll(ctx, func(context.Context) error {
		uri, err := os.ReadFile(h.path("transit/uri"))
		h.transitURI = string(uri)
		return err
	})
}

// end ends what was started. The processes would end with this one.
func (h *keyHolders) end() {
	if h.foreign != nil {
		h.foreign.Stop()
	}
	for _, child := range h.children {
		_, _ = child.Stop(5 * time.Second)
	}
}

func (h *keyHolders) pkcs11URI(name string) string {
	return fmt.Sprintf("pkcs11:token=demo;object=%s;id=%s?module-path=%s&pin-source=%s", name, name, softHSM, h.path("pin"))
}

// importKey puts a key, as an operator has one, into the HSM.
func (h *keyHolders) importKey(ctx context.Context) error {
	key, err := signing.GenerateKey("P-256")
	if err != nil {
		return err
	}
	file := h.path("imported.pem")
	if err := os.WriteFile(file, key.PEM(), 0o600); err != nil {
		return err
	}
	if _, err := output(ctx, "softhsm2-util", "--import", file, "--token", "demo", "--label", "imported", "--id",
		fmt.Sprintf("%x", "imported"), "--pin", pin); err != nil {
		return err
	}
	if err := os.Remove(file); err != nil {
		return err
	}
	return h.nameKey(ctx, "imported", h.pkcs11URI("imported"))
}

// nameKey writes the file of a key and awaits its socket.
func (h *keyHolders) nameKey(ctx context.Context, name, uri string) error {
	if err := os.WriteFile(h.path("keys/"+name+".yaml"), fmt.Appendf(nil, "uri: %s\nalgorithm: P-256\n", uri), 0o600); err != nil {
		return err
	}
	return h.awaitSocket(ctx, name)
}

func (h *keyHolders) awaitSocket(ctx context.Context, name string) error {
	return await.Poll(ctx, func(context.Context) error {
		_, err := os.Stat(h.socket(name))
		return err
	})
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := devcluster.Binary{Path: name}.Run(ctx, args...)
	return strings.TrimSpace(string(out)), err
}

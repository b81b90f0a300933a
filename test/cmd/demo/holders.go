// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sa-controller-manager/signing/signertest"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

const (
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
	helper     *devcluster.Child
	transit    *devcluster.Child
	foreign    *signertest.Foreign
	transitURI string
	imported   []byte // the key that is imported into the HSM, in PEM form
}

func startKeyHolders(ctx context.Context, dir string) (*keyHolders, error) {
	h := &keyHolders{dir: dir}
	for _, name := range []string{"tokens", "keys", "run", "transit"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return nil, err
		}
	}
	var sockets strings.Builder
	sockets.WriteString("schemaVersion: 1\nsockets:\n")
	for _, name := range []string{"imported", "made", "transit", "foreign"} {
		fmt.Fprintf(&sockets, "  %s: %s\n", name, h.socket(name))
	}
	config := filepath.Join(dir, "softhsm2.conf")
	err := errors.Join(
		os.WriteFile(h.socketsFile(), []byte(sockets.String()), 0o600),
		os.WriteFile(h.pinFile(), []byte(pin), 0o600),
		os.WriteFile(config, fmt.Appendf(nil, "directories.tokendir = %s\nlog.level = ERROR\n", filepath.Join(dir, "tokens")), 0o600),
		os.Setenv("SOFTHSM2_CONF", config),
	)
	if err != nil {
		return nil, err
	}
	if _, err := output(ctx, "softhsm2-util", "--init-token", "--free", "--label", "demo", "--pin", pin, "--so-pin", pin); err != nil {
		return nil, err
	}
	if err := errors.Join(h.startForeign(), h.startTransit(ctx)); err != nil {
		h.stop()
		return nil, err
	}
	h.helper, err = child(dir, helperVariable, "serve", "--keys-dir="+h.keys(), "--socket-dir="+filepath.Join(dir, "run"))
	return h, err
}

func (h *keyHolders) keys() string              { return filepath.Join(h.dir, "keys") }
func (h *keyHolders) socket(name string) string { return filepath.Join(h.dir, "run", name+".sock") }
func (h *keyHolders) socketsFile() string       { return filepath.Join(h.dir, "sockets.yaml") }
func (h *keyHolders) pinFile() string           { return filepath.Join(h.dir, "pin") }
func (h *keyHolders) pkcs11URI(name string) string {
	return fmt.Sprintf("pkcs11:token=demo;object=%s;id=%s?module-path=%s&pin-source=%s", name, name, softHSM, h.pinFile())
}

func (h *keyHolders) startForeign() (err error) {
	key, err := newKey()
	if err != nil {
		return err
	}
	h.foreign, err = signertest.NewForeign(h.socket("foreign"), foreignKeyID, key)
	return err
}

func (h *keyHolders) startTransit(ctx context.Context) (err error) {
	dir := filepath.Join(h.dir, "transit")
	if h.transit, err = child(dir, transitVariable, dir); err != nil {
		return err
	}
	return await.Poll(ctx, func(context.Context) error {
		uri, err := os.ReadFile(filepath.Join(dir, "uri"))
		h.transitURI = strings.Replace(string(uri), "KEY", "transit", 1)
		return err
	})
}

// importKey makes a key, as an operator has one, and puts it into the HSM.
func (h *keyHolders) importKey(ctx context.Context) (err error) {
	if h.imported, err = newKey(); err != nil {
		return err
	}
	file := filepath.Join(h.dir, "imported.pem")
	if err := os.WriteFile(file, h.imported, 0o600); err != nil {
		return err
	}
	if _, err := output(ctx, "softhsm2-util", "--import", file, "--token", "demo", "--label", "imported", "--id",
		fmt.Sprintf("%x", "imported"), "--pin", pin); err != nil {
		return err
	}
	spec := fmt.Appendf(nil, "uri: %s\nalgorithm: P-256\n", h.pkcs11URI("imported"))
	if err := errors.Join(os.Remove(file), os.WriteFile(filepath.Join(h.keys(), "imported.yaml"), spec, 0o600)); err != nil {
		return err
	}
	return h.awaitSocket(ctx, "imported")
}

// create has sa-kms-signer make a key, and returns what it says once the key is served.
func (h *keyHolders) create(ctx context.Context, name, uri string) (string, error) {
	path, err := binaryOf(helperVariable)
	if err != nil {
		return "", err
	}
	said, err := output(ctx, path, "create", name, "--keys-dir="+h.keys(), "--uri="+uri, "--algorithm=P-256")
	return said, errors.Join(err, h.awaitSocket(ctx, name))
}

func (h *keyHolders) awaitSocket(ctx context.Context, name string) error {
	if err := await.Poll(ctx, func(context.Context) error {
		_, err := os.Stat(h.socket(name))
		return err
	}); err != nil {
		return fmt.Errorf("%w\n%s", err, h.helper.LogTail(logTail))
	}
	return nil
}

func (h *keyHolders) pkcs11Tool(ctx context.Context, args ...string) (string, error) {
	return output(ctx, "pkcs11-tool", append([]string{"--module", softHSM, "--token-label", "demo", "--login", "--pin", pin}, args...)...)
}

// stop ends what was started. The processes would end with this one.
func (h *keyHolders) stop() {
	if h.foreign != nil {
		h.foreign.Stop()
	}
	for _, c := range []*devcluster.Child{h.helper, h.transit} {
		if c != nil {
			_, _ = c.Stop(5 * time.Second)
		}
	}
}

func newKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), err
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

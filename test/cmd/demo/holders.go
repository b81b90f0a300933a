// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sa-controller-manager/signing"
	"sa-controller-manager/signing/signertest"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
	"sa-controller-manager/test/must"
)

const (
	// What make demo-hsm sets.
	helperVariable  = "SACM_KMS_SIGNER"
	transitVariable = "SACM_TRANSIT"

	softHSM      = "/usr/lib/softhsm/libsofthsm2.so"
	pin          = "41253"
	foreignKeyID = "another-program/2026"
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
func (h *keyHolders) begin(ctx context.Context, dir string) {
	h.dir = dir
	sockets := []byte("schemaVersion: 1\nsockets:\n")
	for _, name := range []string{"imported", "made", "transit", "foreign"} {
		sockets = fmt.Appendf(sockets, "  %s: %s\n", name, h.socket(name))
	}
	for _, name := range []string{"tokens", "keys", "run", "transit"} {
		must.Do(os.MkdirAll(h.path(name), 0o700))
	}
	must.Do(errors.Join(
		os.WriteFile(h.path("sockets.yaml"), sockets, 0o600),
		os.WriteFile(h.path("pin"), []byte(pin), 0o600),
		os.WriteFile(h.path("softhsm2.conf"), fmt.Appendf(nil, "directories.tokendir = %s\nlog.level = ERROR\n", h.path("tokens")), 0o600),
		os.Setenv("SOFTHSM2_CONF", h.path("softhsm2.conf")),
	))
	must.Get(output(ctx, "softhsm2-util", "--init-token", "--free", "--label", "demo", "--pin", pin, "--so-pin", pin))
	for variable, args := range map[string][]string{
		transitVariable: {h.path("transit")}, helperVariable: {"serve", "--keys-dir=" + h.path("keys"), "--socket-dir=" + h.path("run")},
	} {
		path := os.Getenv(variable)
		child, err := devcluster.StartChild(filepath.Base(path), path, h.dir, args)
		must.Not(err != nil, "%s, which make demo-hsm sets: %w", variable, err)
		h.children = append(h.children, child)
	}
	key := must.Get(signing.GenerateKey("P-256"))
	h.foreign = must.Get(signertest.NewForeign(h.socket("foreign"), foreignKeyID, key.PEM()))
	must.Do(await.Poll(ctx, func(context.Context) error {
		uri, err := os.ReadFile(h.path("transit/uri"))
		h.transitURI = string(uri)
		return err
	}))
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
func (h *keyHolders) importKey(ctx context.Context) {
	key := must.Get(signing.GenerateKey("P-256"))
	file := h.path("imported.pem")
	must.Do(os.WriteFile(file, key.PEM(), 0o600))
	must.Get(output(ctx, "softhsm2-util", "--import", file, "--token", "demo", "--label", "imported", "--id",
		fmt.Sprintf("%x", "imported"), "--pin", pin))
	must.Do(os.Remove(file))
	h.nameKey(ctx, "imported", h.pkcs11URI("imported"))
}

// nameKey writes the file of a key and awaits its socket.
func (h *keyHolders) nameKey(ctx context.Context, name, uri string) {
	must.Do(os.WriteFile(h.path("keys/"+name+".yaml"), fmt.Appendf(nil, "uri: %s\nalgorithm: P-256\n", uri), 0o600))
	h.awaitSocket(ctx, name)
}

func (h *keyHolders) awaitSocket(ctx context.Context, name string) {
	must.Do(await.Poll(ctx, func(context.Context) error {
		_, err := os.Stat(h.socket(name))
		return err
	}))
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := devcluster.Binary{Path: name}.Run(ctx, args...)
	return strings.TrimSpace(string(out)), err
}

// hsm is the demonstration that moves the keys of a cluster in use from a file to an HSM, on to a
// transit engine, to a foreign signer, and back to a file, loses a host, and revokes a key. No token may be refused.
type hsm struct {
	*rotation
	*keyHolders
}

func showHSM(ctx context.Context, s *story) {
	s.linef("Service account keys that leave their file, in a cluster that is in use\n")
	d := &hsm{rotation: newRotation(s), keyHolders: &keyHolders{}}
	defer d.end()
	d.demonstrate(ctx, d.startSigner, []step{
		{"Clients request and use tokens", d.clientsStart},
		{"Keys for the HSM and the transit engine", d.keysAreMade},
		{"The imported key of the HSM signs", d.signsIn("imported")},
		{"The key made in the HSM, which nobody has seen, signs", d.signsIn("made")},
		{"The transit engine, which is Vault's own, signs", d.signsIn("transit")},
		{"A foreign signer signs, with the key ID that it has chosen", d.signsIn("foreign")},
		{"A file again", d.fileAgain},
		{"A host is lost", d.hostIsLost},
		{"The key that was imported into the HSM has leaked", d.importedLeaks},
	})
}

// startSigner has the manager sign with the key of a file, and tells it where the other keys are
// going to be.
func (d *hsm) startSigner(ctx context.Context) error {
	d.begin(ctx, filepath.Join(d.cluster.Dir(), "holders"))
	d.keyFlags = []string{"--service-account-key-sockets=" + d.path("sockets.yaml")}
	return d.rotation.startSigner(ctx)
}

func (d *hsm) keysAreMade(ctx context.Context) {
	d.importKey(ctx)
	must.Get(output(ctx, "pkcs11-tool", "--module", softHSM, "--token-label", "demo", "--login", "--pin", pin, "--keypairgen",
		"--key-type", "EC:prime256v1", "--label", "made", "--id", fmt.Sprintf("%x", "made"), "--sensitive", "--usage-sign"))
	for name, uri := range map[string]string{"made": d.pkcs11URI("made"), "transit": d.transitURI} {
		d.nameKey(ctx, name, uri)
		d.notef("file", "%s.yaml of sa-kms-signer has %s...", name, strings.SplitN(uri, "?", 2)[0])
	}
	shown := must.Get(output(ctx, "pkcs11-tool", "--module", softHSM, "--token-label", "demo", "--login", "--pin", pin,
		"--list-objects", "--type", "privkey"))
	d.notef("shown", "by pkcs11-tool --list-objects --type privkey:\n%s", shown)
	if !slices.ContainsFunc(strings.Split(shown, "Private Key Object"), func(object string) bool {
		return strings.Contains(object, "made") && strings.Contains(object, "sensitive, always sensitive, never extract")
	}) {
		must.Do(errors.New("the HSM has no key that was made there and cannot leave it"))
	}
}

// signsIn returns a step in which a key in another process signs. No command makes the next one in the ring file in its place.
func (d *hsm) signsIn(name string) func(context.Context) {
	return func(ctx context.Context) {
		d.rotate(ctx, "--key=kep740:"+name, " --next-key=none")
		if got := d.used[len(d.used)-1].ID; name == "foreign" && got != foreignKeyID {
			must.Do(fmt.Errorf("key ID %q, want the signer's own, %q", got, foreignKeyID))
		}
	}
}

func (d *hsm) fileAgain(ctx context.Context) {
	must.Do(d.refused(d.keys(ctx, "rotate"), "the ring has no next key"))
	d.rotate(ctx, "--algorithm=P-256", "")
}

// importedLeaks revokes a key with a private half that a file has had.
func (d *hsm) importedLeaks(ctx context.Context) { d.revoked(ctx, d.used[1].ID, "") }

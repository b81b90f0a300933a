// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// hsm is the demonstration that moves the keys of a cluster in use from a file to an HSM, on to a
// transit engine, to a signer of somebody else, and back to a file, loses a host, and revokes a key. No token may be refused.
type hsm struct {
	*rotation
	*keyHolders
}

func showHSM(ctx context.Context, s *story) error {
	s.linef("Service account keys that leave their file, in a cluster that is in use\n")
	d := &hsm{rotation: newRotation(s), keyHolders: &keyHolders{}}
	defer d.end()
	return d.demonstrate(ctx, d.startSigner, []step{
		{"Clients request and use tokens", d.clientsStart},
		{"Keys for the HSM and the transit engine", d.keysAreMade},
		{"The imported key of the HSM signs", d.signsIn("imported")},
		{"The key made in the HSM, which nobody has seen, signs", d.signsIn("made")},
		{"The transit engine, which is Vault's own, signs", d.signsIn("transit")},
		{"A signer of somebody else signs, with the key ID that it has chosen", d.signsIn("foreign")},
		{"A file again", d.fileAgain},
		{"A host is lost", d.hostIsLost},
		{"The key that was imported into the HSM has leaked", d.importedLeaks},
	})
}

// startSigner has the manager sign with the key of a file, and tells it where the other keys are
// going to be.
func (d *hsm) startSigner(ctx context.Context) error {
	if err := d.begin(ctx, filepath.Join(d.cluster.Dir(), "holders")); err != nil {
		return err
	}
	d.keyFlags = []string{"--service-account-key-sockets=" + d.path("sockets.yaml")}
	return d.rotation.startSigner(ctx)
}

func (d *hsm) keysAreMade(ctx context.Context) error {
	if err := d.importKey(ctx); err != nil {
		return err
	}
	if _, err := output(ctx, "pkcs11-tool", "--module", softHSM, "--token-label", "demo", "--login", "--pin", pin, "--keypairgen",
		"--key-type", "EC:prime256v1", "--label", "made", "--id", fmt.Sprintf("%x", "made"), "--sensitive", "--usage-sign"); err != nil {
		return err
	}
	for name, uri := range map[string]string{"made": d.pkcs11URI("made"), "transit": d.transitURI} {
		if err := d.nameKey(ctx, name, uri); err != nil {
			return err
		}
		d.notef("file", "%s.yaml of sa-kms-signer has %s...", name, strings.SplitN(uri, "?", 2)[0])
	}
	shown, err := output(ctx, "pkcs11-tool", "--module", softHSM, "--token-label", "demo", "--login", "--pin", pin,
		"--list-objects", "--type", "privkey")
	if err != nil {
		return err
	}
	d.notef("shown", "by pkcs11-tool --list-objects --type privkey:\n%s", shown)
	if !slices.ContainsFunc(strings.Split(shown, "Private Key Object"), func(object string) bool {
		return strings.Contains(object, "made") && strings.Contains(object, "sensitive, always sensitive, never extract")
	}) {
		return errors.New("the HSM has no key that was made there and cannot leave it")
	}
	return nil
}

// signsIn returns a step in which a key in another process signs. No command makes the next one in the ring file in its place.
func (d *hsm) signsIn(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		err := d.rotate(ctx, "--key=kep740:"+name, " --next-key=none")
		if got := d.used[len(d.used)-1].ID; err == nil && name == "foreign" && got != foreignKeyID {
			return fmt.Errorf("key ID %q, want the signer's own, %q", got, foreignKeyID)
		}
		return err
	}
}

func (d *hsm) fileAgain(ctx context.Context) error {
	if err := d.refused(d.keys(ctx, "rotate"), "the ring has no next key"); err != nil {
		return err
	}
	return d.rotate(ctx, "--algorithm=P-256", "")
}

// importedLeaks revokes a key with a private half that a file has had.
func (d *hsm) importedLeaks(ctx context.Context) error { return d.revoked(ctx, d.used[1].ID, "") }

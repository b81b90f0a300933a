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

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/devcluster"
)

// hsm is the demonstration that moves the keys of a cluster in use from a file to an HSM, on to a
// transit engine, to a signer of somebody else, and back to a file, and then revokes one. No call may fail, and the
// manager's memory never has a key of the HSM.
type hsm struct {
	*rotation
	*keyHolders
}

func showHSM(ctx context.Context, s *story) error {
	s.Linef("Service account keys that leave their file, in a cluster that is in use\n")
	d := &hsm{rotation: &rotation{story: s}}
	defer func() {
		if d.keyHolders != nil {
			d.stop()
		}
	}()
	return d.demonstrate(ctx, d.startSigner, nil, []step{
		{
			"Clients request and use tokens",
			"a requested token and a token Secret, both signed with the key of a file", d.clientsStart,
		},
		{
			"Keys for the HSM and the transit engine",
			"one key imported, one made in the HSM that cannot leave it, one in the engine", d.keysAreMade,
		},
		{
			"The imported key of the HSM signs",
			"new tokens signed by SoftHSM, and the key nowhere in the manager's memory", d.importedSigns,
		},
		{
			"The key made in the HSM signs",
			"new tokens signed with a key that nobody has seen", func(ctx context.Context) error { return d.rotateTo(ctx, "--key=kep740:made") },
		},
		{
			"The transit engine signs",
			"new tokens signed by Vault's own engine", func(ctx context.Context) error { return d.rotateTo(ctx, "--key=kep740:transit") },
		},
		{
			"A signer of somebody else signs",
			"new tokens with the key ID that it has chosen", d.foreignSigns,
		},
		{
			"A file again",
			"new tokens signed with a new key of the ring", d.fileAgain,
		},
		{
			"The key that was imported into the HSM has leaked", "that its tokens are refused, and those of other keys are not", d.importedLeaks,
		},
	})
}

// startSigner has the manager sign with the key of a file, and tells it where the other keys are
// going to be.
func (d *hsm) startSigner(ctx context.Context) (err error) {
	if d.keyHolders, err = startKeyHolders(ctx, filepath.Join(d.cluster.Dir(), "holders")); err != nil {
		return err
	}
	d.keyFlags = []string{"--service-account-key-sockets=" + d.socketsFile()}
	return d.rotation.startSigner(ctx)
}

func (d *hsm) keysAreMade(ctx context.Context) error {
	if err := d.importKey(ctx); err != nil {
		return err
	}
	for name, uri := range map[string]string{"made": d.pkcs11URI("made"), "transit": d.transitURI} {
		said, err := d.create(ctx, name, uri)
		if err != nil {
			return err
		}
		d.Notef("command", "sa-kms-signer create %s --uri=%s...\n%s", name, strings.SplitN(uri, "?", 2)[0], said)
	}
	shown, err := d.pkcs11Tool(ctx, "--list-objects", "--type", "privkey")
	if err != nil {
		return err
	}
	d.Notef("shown", "by pkcs11-tool --list-objects --type privkey:\n%s", shown)
	const sealed = "sensitive, always sensitive, never extract"
	for object := range strings.SplitSeq(shown, "Private Key Object") {
		if made := strings.Contains(object, "made"); made && !strings.Contains(object, sealed) {
			return errors.New("the key made in the HSM may leave it")
		}
	}
	if !strings.Contains(shown, sealed) {
		return errors.New("no key that cannot leave the HSM")
	}
	return nil
}

func (d *hsm) importedSigns(ctx context.Context) error {
	if err := d.rotateTo(ctx, "--key=kep740:imported"); err != nil {
		return err
	}
	file, err := os.ReadFile(d.cluster.SigningKeyFile())
	if err != nil {
		return err
	}
	for _, search := range []struct {
		what  string
		pem   []byte
		there bool
	}{{"the imported key", d.imported, false}, {"the key of the file, which is in the ring", file, true}} {
		needles, err := formsOf(search.pem)
		if err != nil {
			return err
		}
		found, bytes, err := inMemory(d.manager.PID(), needles)
		if err != nil {
			return err
		}
		if (found > 0) != search.there {
			return fmt.Errorf("%s is %d times in the memory of the manager", search.what, found)
		}
		d.Notef("searched", "%d MiB of the manager's memory for %s: %d times", bytes>>20, search.what, found)
	}
	return nil
}

func (d *hsm) foreignSigns(ctx context.Context) error {
	if err := d.rotateTo(ctx, "--key=kep740:foreign"); err != nil {
		return err
	}
	if got := d.used[len(d.used)-1].id; got != foreignKeyID {
		return fmt.Errorf("key ID %q, want the signer's own, %q", got, foreignKeyID)
	}
	return nil
}

// rotateTo has another key sign. No command makes the next one in the ring file in its place.
func (d *hsm) rotateTo(ctx context.Context, key string) error {
	return d.rotate(ctx, "command", key, " --next-key=none")
}

func (d *hsm) fileAgain(ctx context.Context) error {
	_, err := d.change(ctx, "rotate")
	refused, ok := errors.AsType[*refusedError](err)
	if !ok || !strings.Contains(refused.message, "the ring has no next key") {
		return fmt.Errorf("no refusal of a ring without a next key, but: %w", orNil(err))
	}
	d.Notef("refused", "%s", strings.ReplaceAll(refused.message, ": ", ":\n"))
	return d.rotate(ctx, "command", "--algorithm=P-256", "")
}

// refusedWithin is how soon after the command every kube-apiserver with the external signer refuses a revoked
// key (docs/rotation.md).
const refusedWithin = 12 * time.Second

// importedLeaks revokes a key with a private half that a file has had.
func (d *hsm) importedLeaks(ctx context.Context) error {
	leaked := d.used[1]
	var dead []issuedToken
	d.issued = slices.DeleteFunc(d.issued, func(token issuedToken) bool {
		if token.signer == leaked {
			dead = append(dead, token)
		}
		return token.signer == leaked
	})
	begun := time.Now()
	if _, err := d.change(ctx, "revoke "+leaked.id+" --yes"); err != nil {
		return err
	}
	for _, token := range dead {
		if err := await.Poll(ctx, func(ctx context.Context) error {
			if d.review(ctx, d.hosts[0], token) == nil {
				return fmt.Errorf("%s is accepted", token.name)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	took := time.Since(begun)
	if took > refusedWithin {
		return fmt.Errorf("tokens of the key were accepted for %s, want %s at most", rounded(took), refusedWithin)
	}
	d.Notef("revoked", "%s: %d tokens of it are refused after %s, %s at most", leaked, len(dead), rounded(took), refusedWithin)
	return nil
}

// binaryOf returns the program that an environment variable names.
func binaryOf(variable string) (string, error) {
	path := os.Getenv(variable)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s: %w: make demo-hsm sets it", variable, err)
	}
	return path, nil
}

// child starts a program that a variable names.
func child(dir, variable string, args ...string) (*devcluster.Child, error) {
	path, err := binaryOf(variable)
	if err != nil {
		return nil, err
	}
	return devcluster.StartChild(filepath.Base(path), path, dir, args)
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"crypto/rand"
	"crypto/rsa"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hashicorp/vault/sdk/logical"
	"sa-controller-manager/internal/testutil"

	"sa-controller-manager/test/backends/vault"
)

// TestRefusals wants one line that has the key's name and its URI without secrets, what was found
// and what to do.
func TestRefusals(t *testing.T) {
	t.Parallel()
	hsm, bao, cloud := newToken(t), newVault(t), newKMS(t)
	there, aKey, inCloud := hsm.make(t, "there", "P-256"), makeTransit(t, bao, "bao", "P-256"), cloud.make(t, "cloud", "P-256")
	for _, args := range []string{
		"--key-type EC:prime256v1 --label twins --id 01", "--key-type EC:prime256v1 --label twins --id 02",
		"--key-type rsa:3072 --label long --id 03", "--key-type rsa:1024 --label short --id 04",
	} {
		hsm.tool(t, append([]string{"--keypairgen"}, strings.Fields(args)...)...)
	}
	call(t, bao, logical.UpdateOperation, "keys/aes", map[string]any{"type": "aes256-gcm96"})
	sealed, silent := newVault(t), newVault(t)
	sealed.Break(vault.Fault{Status: http.StatusServiceUnavailable})
	silent.Stop()
	denied := newKMS(t)
	denied.refusal = kmsError{
		"AccessDeniedException", "User: arn:aws:iam::111122223333:user/sa is not authorized to perform: kms:GetPublicKey",
	}
	wordy := newKMS(t)
	wordy.refusal = kmsError{"AccessDeniedException", "begins " + strings.Repeat("and goes on ", 1<<16)}
	decrypts := testutil.Get(rsa.GenerateKey(rand.Reader, 2048))(t)
	cloud.keys["decrypts"], cloud.usages["decrypts"] = decrypts, "ENCRYPT_DECRYPT"

	wrong := write(t, filepath.Join(t.TempDir(), "wrong"), "wrong")
	pipe := filepath.Join(t.TempDir(), "pipe")
	testutil.Must(t, syscall.Mkfifo(pipe, 0o600))
	object := func(label string) string {
		return strings.Replace(hsm.uri("there"), "object=there;id=there", "object="+label, 1)
	}
	for name, tc := range map[string]struct {
		reason, uri, algorithm string
		want                   []string
	}{
		"UnknownScheme": {
			"a spelling mistake", "pkcs12:token=a", "P-256",
			[]string{`uri scheme "pkcs12"`, "want one of awskms, azurekms, cloudkms, openbao, pkcs11, vault"},
		},
		"UnknownAlgorithm": {"kube-apiserver takes no other", there, "EdDSA", []string{`algorithm "EdDSA"`, "want one of P-256"}},
		"UnknownAttribute": {
			"a spelling mistake", there + "&pin-sauce=hidden", "P-256", []string{`unknown attribute "pin-sauce"`, "want one of"},
		},
		"PINInTheQuery": {
			"it would be in the file and in process lists", there + "&pin-value=hidden", "P-256",
			[]string{"a secret in the URI is not accepted", "put it into a file"},
		},
		"PINInThePath": {
			"RFC 7512 does not have it there", "pkcs11:pin-value=hidden;" + strings.TrimPrefix(there, "pkcs11:"), "P-256",
			[]string{"a secret in the URI is not accepted"},
		},

		"NoModule": {
			"a path that is not there", strings.Replace(there, module, "/none.so", 1), "P-256",
			[]string{"module-path: /none.so cannot be loaded", "want the library"},
		},
		"NoToken": {
			"another label", strings.Replace(there, hsm.label, "none", 1), "P-256",
			[]string{"could not find PKCS#11 token", "--list-token-slots"},
		},
		"NoObject":   {"another object", object("none"), "P-256", []string{"found no key pair", "--list-objects"}},
		"TwoObjects": {"one name is not enough", object("twins"), "P-256", []string{"found 2 key pairs", "name one by both object and id"}},
		"WrongPIN": {
			"it is tried once", strings.Replace(there, hsm.pinFile, wrong, 1), "P-256",
			[]string{"the token refuses the PIN in " + wrong, "not tried again until the file has another one"},
		},
		"LockedPIN": {
			"after a few attempts", strings.Replace(there, module, refusing(t, fnLogin, ckrPINLocked), 1), "P-256",
			[]string{"the token has locked the PIN", "security officer"},
		},
		"NoPINFile": {
			"not mounted", strings.Replace(there, hsm.pinFile, "/none", 1), "P-256", []string{"pin-source: open /none: no such file"},
		},
		"PINPipe": {
			"it would be waited for", strings.Replace(there, hsm.pinFile, pipe, 1), "P-256",
			[]string{"pin-source: " + pipe + ": want a regular file"},
		},
		"OtherAlgorithm": {
			"the key decides", there, "RSA-2048", []string{"the key is P-256, and RSA-2048 is asked for", "name another key"},
		},
		"OtherSize": {"the key decides", object("long"), "RSA-2048", []string{"the key is RSA-3072, and RSA-2048 is asked for"}},
		"TooShort":  {"kube-apiserver takes none below 2048 bits", object("short"), "RSA-2048", []string{"1024"}},
		"CannotSign": {
			"an HSM holds keys for other uses", strings.Replace(there, module, refusing(t, fnSignInit, ckrFunctionNotPermitted), 1),
			"P-256",
			[]string{"CKR_KEY_FUNCTION_NOT_PERMITTED", "want a key with CKA_SIGN"},
		},

		"NoVersion": {"a rotation inside the engine", strings.Replace(aKey, ";version=1", "", 1), "P-256", []string{"want version"}},
		"NewerVersion": {
			"not there yet", strings.Replace(aKey, "version=1", "version=2", 1), "P-256",
			[]string{"the key has no version 2", "its newest version is 1"},
		},
		"AES":         {"an engine holds keys for other uses", bao.URI("aes"), "P-256", []string{"its type is aes256-gcm96"}},
		"NoKey":       {"another name", bao.URI("none"), "P-256", []string{"the engine has no key of that name", "correct mount or key"}},
		"NoNamespace": {"a namespace that is not there", aKey + "&namespace=none", "P-256", []string{"the engine has no key of that name"}},
		"PlainHTTP": {
			"the token would be readable", strings.Replace(aKey, "https://", "http://bao", 1), "P-256",
			[]string{"want address, an https URL"},
		},
		"Forbidden": {
			"another token", strings.Replace(aKey, bao.TokenFile, wrong, 1), "P-256",
			[]string{"transit/keys/bao: HTTP 403: permission denied", "let the token read transit/keys/bao and update transit/sign/bao/*"},
		},
		"Sealed":      {"after a restart", sealed.URI("bao"), "P-256", []string{"HTTP 503: Vault is sealed"}},
		"Unreachable": {"it does not run", silent.URI("bao"), "P-256", []string{"connection refused", "check address"}},
		"UnknownCA": {
			"another server", strings.Replace(aKey, "&ca-source="+bao.CAFile, "", 1), "P-256",
			[]string{"certificate signed by unknown authority", "ca-source"},
		},

		"NoRegion": {
			"not everywhere is one configured", strings.Replace(inCloud, "region=eu-central-1&", "", 1), "P-256", []string{"want region"},
		},
		"NoAlias": {"another name", cloud.uri("none"), "P-256", []string{"NotFoundException: Alias", "is not found"}},
		"Denied": {
			"the policy of the key", denied.uri("cloud"), "P-256",
			[]string{"AccessDeniedException", "is not authorized to perform: kms:GetPublicKey"},
		},
		"Wordy": {"a proxy answers with a page", wordy.uri("cloud"), "P-256", []string{"AccessDeniedException: begins and goes on"}},
		"Decrypts": {
			"a cloud holds keys for other uses", strings.Replace(inCloud, "alias/cloud", "decrypts", 1), "RSA-2048",
			[]string{"the key does not sign: InvalidKeyUsageException", "usage is ENCRYPT_DECRYPT"},
		},
		"NoCredentials": {
			"not mounted", strings.Replace(inCloud, cloud.credentials, "/none", 1), "P-256", []string{"credentials-file: stat /none"},
		},
		"Capitals": {
			"the library would ask for another alias", strings.Replace(inCloud, "alias/cloud", "alias/Cloud", 1), "P-256",
			[]string{"key-id: want lower case"},
		},
		"NoCloud": {
			"the SDK's own words", "azurekms:vault=v;name=k?version=1&environment=nowhere", "P-256",
			[]string{"unknown key vault cloud environment", "(azurekms:vault=v;name=k)"},
		},
		"NewestVersion": {"it changes", "azurekms:vault=v;name=k", "P-256", []string{"want version"}},
		"NoResource":    {"a name that no cloud has", "cloudkms:name=k", "P-256", []string{"want resource, projects/"}},
		"NoGoogleCredentials": {
			"not mounted", "cloudkms:resource=projects/p/locations/l/keyRings/r/cryptoKeys/k/cryptoKeyVersions/1?credentials-file=/none",
			"P-256",
			[]string{"credentials-file: stat /none"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			nameKey(t, dir, "mine", tc.uri, tc.algorithm)
			out := serve(t, dir, pin, vault.Token, awsSecret, "hidden").notServed(t)
			scheme, _, _ := strings.Cut(tc.uri, ":")
			for _, want := range append(tc.want, "key mine ("+scheme+":") {
				testutil.CheckContains(t, tc.reason, want, out)
			}
			if len(out) > 2<<10 {
				t.Errorf("the file for the probe has %d bytes", len(out))
			}
			for _, secret := range []string{pin, vault.Token, awsSecret, "hidden"} {
				if strings.Contains(out, secret) {
					t.Errorf("%s: the file for the probe holds a secret:\n%s", tc.reason, out)
				}
			}
		})
	}
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package backends runs sa-kms-signer with keys of a real PKCS#11 module (SoftHSM) and of the real
// transit engine of Vault. It is a module of its own, because that engine brings half of Vault
// along, and because the tests need Debian's softhsm2.
package backends

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/vault/sdk/logical"
	"sa-controller-manager/controllers/keyring/remote"
	"sa-controller-manager/internal/testutil"
	"sa-controller-manager/signing"
	"sa-controller-manager/signing/signertest"

	"sa-controller-manager/test/await"
	"sa-controller-manager/test/backends/vault"
	"sa-controller-manager/test/devcluster"
)

var (
	// workDir is for what all tests share.
	workDir string
	// binary is sa-kms-signer, built with the race detector.
	binary string
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "backends")
		if err != nil {
			panic(err)
		}
		workDir = dir
		defer func() { _ = os.RemoveAll(dir) }()
		binary = filepath.Join(dir, "sa-kms-signer")
		if err := setUpSoftHSM(); err != nil {
			panic(err)
		}
		build := exec.Command("go", "build", "-race", "-o", binary, ".")
		build.Dir = "../../cmd/sa-kms-signer"
		build.Env = append(os.Environ(), "CGO_ENABLED=1")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build sa-kms-signer: %v\n%s", err, out)
			return 1
		}
		return m.Run()
	}())
}

// nameKey writes the file of a key.
func nameKey(t *testing.T, keys, name, uri, algorithm string) {
	t.Helper()
	write(t, filepath.Join(keys, name+".yaml"), fmt.Sprintf("uri: %q\nalgorithm: %s\n", uri, algorithm))
}

// makeTransit makes a key of the engine, and returns its URI.
func makeTransit(t *testing.T, v *vault.Vault, name, algorithm string) string {
	t.Helper()
	kind := strings.NewReplacer("P-", "ecdsa-p", "RSA-", "rsa-").Replace(algorithm)
	call(t, v, logical.UpdateOperation, "keys/"+name, map[string]any{"type": kind})
	return v.URI(name)
}

// A signer is a running sa-kms-signer.
type signer struct {
	*devcluster.Child

	sockets string
}

// serve starts sa-kms-signer, whose log must not hold the secrets.
func serve(t *testing.T, keys string, secrets ...string) *signer {
	t.Helper()
	return serveOn(t, keys, t.TempDir(), secrets...)
}

// serveOn does so with sockets in a directory that there is.
func serveOn(t *testing.T, keys, sockets string, secrets ...string) *signer {
	t.Helper()
	s := &signer{sockets: sockets}
	var err error
	s.Child, err = devcluster.StartChild("sa-kms-signer", binary, t.TempDir(),
		[]string{"serve", "--keys-dir=" + keys, "--socket-dir=" + s.sockets, "-v=4"})
	testutil.Must(t, err)
	t.Cleanup(func() {
		if exit, err := s.Stop(30 * time.Second); err != nil || exit.Code != 0 {
			t.Errorf("sa-kms-signer ended with %+v, %v:\n%s", exit, err, s.Logs())
		}
		for _, secret := range secrets {
			if strings.Contains(s.Logs(), secret) {
				t.Error("the log holds a secret")
			}
		}
	})
	return s
}

// notServed awaits a file for the readiness probe, once no key is being opened, and returns it.
func (s *signer) notServed(t *testing.T) (text string) {
	t.Helper()
	eventually(t, "the file for the readiness probe", func() error {
		content, err := os.ReadFile(filepath.Join(s.sockets, "not-served"))
		if text = string(content); strings.Contains(text, "the key is being opened") {
			return errors.New(text)
		}
		return err
	})
	return text
}

// pin returns the product's client of one key, with what it has pinned once that is served.
func (s *signer) pin(t *testing.T, name string) (*remote.Client, signing.PublicKey) {
	t.Helper()
	c := remote.NewClient(func() remote.Sockets { return remote.Sockets{name: filepath.Join(s.sockets, name+".sock")} }, nil)
	t.Cleanup(c.Close)
	var pinned remote.Pinned
	eventually(t, "the key", func() (err error) {
		pinned, err = c.Pin(t.Context(), name)
		return err
	})
	return c, pinned.Key
}

// connect returns a client of a key's socket, which need not be there yet.
func (s *signer) connect(t *testing.T, name string) *signertest.Remote {
	t.Helper()
	return connect(t, filepath.Join(s.sockets, name+".sock"))
}

func connect(t *testing.T, path string) *signertest.Remote {
	t.Helper()
	remote := testutil.Get(signertest.Connect(path))(t)
	t.Cleanup(func() { _ = remote.Close() })
	return remote
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, fmt.Errorf("await %s", what))
	defer cancel()
	testutil.Must(t, await.Poll(ctx, func(context.Context) error { return check() }))
}

func write(t *testing.T, path, content string) string {
	t.Helper()
	testutil.Must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func newVault(t *testing.T) *vault.Vault {
	t.Helper()
	v := testutil.Get(vault.Start(t.Context(), t.TempDir()))(t)
	t.Cleanup(v.Stop)
	return v
}

// call makes a request of the engine itself.
func call(t *testing.T, v *vault.Vault, operation logical.Operation, path string, data map[string]any) {
	t.Helper()
	testutil.Must(t, v.Call(t.Context(), operation, path, data))
}

const (
	module = "/usr/lib/softhsm/libsofthsm2.so"
	pin    = "pin-of-the-token-8461"
)

// client is a PKCS#11 module that talks to a server, which has SoftHSM.
func client(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/*/pkcs11/p11-kit-client.so")
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v: install Debian's p11-kit-modules", found, err)
	}
	return found[0]
}

// setUpSoftHSM makes a directory for the tokens of all tests. SoftHSM and client read their
// configuration from the environment.
func setUpSoftHSM() error {
	dir := filepath.Join(workDir, "softhsm")
	config := fmt.Sprintf("directories.tokendir = %s\nobjectstore.backend = file\nlog.level = ERROR\n", dir)
	return errors.Join(
		os.Mkdir(dir, 0o700),
		os.WriteFile(dir+".conf", []byte(config), 0o600),
		os.Setenv("SOFTHSM2_CONF", dir+".conf"),
		os.Setenv("P11_KIT_SERVER_ADDRESS", "unix:path="+remoteSocket()),
	)
}

var (
	newTokens atomic.Int32
	making    sync.Mutex // two that look for a free slot at a time find the same
)

// A token is a SoftHSM token of a test's own.
type token struct{ label, pinFile string }

func newToken(t *testing.T) token {
	t.Helper()
	if _, err := os.Stat(module); err != nil {
		t.Fatalf("%v: install Debian's softhsm2", err)
	}
	tok := token{label: fmt.Sprintf("token-%d", newTokens.Add(1)), pinFile: write(t, filepath.Join(t.TempDir(), "pin"), pin+"\n")}
	making.Lock()
	defer making.Unlock()
	util := exec.CommandContext(t.Context(), "softhsm2-util", "--init-token", "--free", "--label", tok.label, "--pin", pin,
		"--so-pin", "87654321")
	if out, err := util.CombinedOutput(); err != nil {
		t.Fatalf("make a token: %v\n%s", err, out)
	}
	return tok
}

// uri names a key of the token.
func (k token) uri(name string) string {
	return fmt.Sprintf("pkcs11:token=%s;object=%s;id=%s?module-path=%s&pin-source=%s", k.label, name, name, module, k.pinFile)
}

// make makes a key of the token that cannot leave it, and returns its URI.
func (k token) make(t *testing.T, name, algorithm string) string {
	t.Helper()
	kind := strings.NewReplacer("P-256", "EC:prime256v1", "P-", "EC:secp", "RSA-", "rsa:").Replace(algorithm)
	if strings.HasPrefix(kind, "EC:secp") {
		kind += "r1"
	}
	k.tool(t, "--keypairgen", "--key-type", kind, "--label", name, "--id", hex.EncodeToString([]byte(name)), "--sensitive", "--usage-sign")
	return k.uri(name)
}

// remoteSocket is where client finds its server.
func remoteSocket() string { return filepath.Join(workDir, "p11-kit.sock") }

// startRemote starts the server of client and returns what kills it: then the token is gone, as
// one is that is pulled out or a network HSM that restarts.
func startRemote(t *testing.T) (kill func() error) {
	t.Helper()
	server := exec.CommandContext(t.Context(), "p11-kit", "server", "--foreground", "--name", remoteSocket(), "--provider", module,
		"pkcs11:")
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it has a child for each client
	if err := server.Start(); err != nil {
		t.Fatalf("%v: install Debian's p11-kit", err)
	}
	eventually(t, "the socket of p11-kit", func() error {
		_, err := os.Lstat(remoteSocket())
		return err
	})
	return func() error {
		err := syscall.Kill(-server.Process.Pid, syscall.SIGKILL)
		_ = server.Wait()
		return errors.Join(err, os.Remove(remoteSocket()))
	}
}

// tool runs OpenSC's pkcs11-tool on the token.
func (k token) tool(t *testing.T, args ...string) {
	t.Helper()
	tool := exec.CommandContext(t.Context(), "pkcs11-tool",
		append([]string{"--module", module, "--token-label", k.label, "--login", "--pin", pin}, args...)...)
	if out, err := tool.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", tool.Args, err, out)
	}
}

// Of CK_FUNCTION_LIST and of the return values (PKCS#11, section 5).
const (
	fnLogin, fnSignInit, fnSign           = 18, 42, 43
	ckrPINLocked, ckrFunctionNotPermitted = 0xA4, 0x68
)

// refusing is SoftHSM with one function that always fails.
func refusing(t *testing.T, function, code int) string {
	t.Helper()
	return compile(t, "refuses.c", fmt.Sprintf("-DFUNCTION=%d", function), fmt.Sprintf("-DCODE=%d", code))
}

// counting is SoftHSM, and a file that has a byte for each PIN that it has refused. Then it does what is to be done after it.
func counting(t *testing.T, after string) (library, attempts string) {
	t.Helper()
	attempts = write(t, filepath.Join(t.TempDir(), "attempts"), "")
	return compile(t, "counts.c", fmt.Sprintf("-DATTEMPTS=%q", attempts), "-DAFTER="+after), attempts
}

// waiting is SoftHSM with one function that does not return while a file is there, as it is first. Each call that waits
// adds a byte to it, and never returns if it is to be lost.
func waiting(t *testing.T, function int, lost bool) (library, file string) {
	t.Helper()
	file = write(t, filepath.Join(t.TempDir(), "wait"), "")
	return compile(t, "waits.c", fmt.Sprintf("-DFUNCTION=%d", function), fmt.Sprintf("-DWAIT=%q", file), fmt.Sprintf("-DLOST=%t", lost)),
		file
}

// forking is SoftHSM with a process of its own, as a client of an HSM has, which ends after the test.
func forking(t *testing.T) string {
	t.Helper()
	return compile(t, "forks.c", fmt.Sprintf("-DTEST=%q", write(t, filepath.Join(t.TempDir(), "test"), "")))
}

func compile(t *testing.T, source string, defines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "module.so")
	args := append([]string{"-shared", "-fPIC", fmt.Sprintf("-DSOFTHSM=%q", module), "-o", path, "testdata/" + source, "-ldl"}, defines...)
	if out, err := exec.CommandContext(t.Context(), "gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

const awsSecret = "secret-of-the-cloud-3390"

// A kms answers as the API reference of AWS KMS says, for the two operations that are used. It
// stands in for the cloud, where sa-kms-signer was not tried.
type kms struct {
	server      *httptest.Server
	credentials string // a file, which also has the address

	mu      sync.Mutex
	keys    map[string]crypto.Signer // by key ID
	usages  map[string]string
	aliases map[string]string // key IDs
	refusal kmsError          // the answer to everything, if there is one
}

func newKMS(t *testing.T) *kms {
	t.Helper()
	k := &kms{keys: map[string]crypto.Signer{}, usages: map[string]string{}, aliases: map[string]string{}}
	k.server = httptest.NewServer(http.HandlerFunc(k.serve))
	t.Cleanup(k.server.Close)
	k.credentials = write(t, filepath.Join(t.TempDir(), "credentials"), fmt.Sprintf(
		"[default]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = %s\nendpoint_url = %s\n", awsSecret, k.server.URL))
	return k
}

// make makes a key and its alias, and returns its URI.
func (k *kms) make(t *testing.T, name, algorithm string) string {
	t.Helper()
	key := testutil.Get(generate(algorithm))(t)
	id := fmt.Sprintf("1234abcd-12ab-34cd-56ef-%012d", len(k.keys))
	k.keys[id], k.usages[id], k.aliases[name] = key, "SIGN_VERIFY", id
	return k.uri(name)
}

// uri names a key by its alias.
func (k *kms) uri(name string) string {
	return fmt.Sprintf("awskms:key-id=alias/%s?region=eu-central-1&credentials-file=%s", name, k.credentials)
}

// kmsRequest has the fields of all operations.
type kmsRequest struct {
	KeyId, MessageType, SigningAlgorithm string //nolint:revive // names of the API
	Message                              []byte
}

// kmsError is a code of the API reference and a message.
type kmsError struct{ code, message string }

func (e kmsError) Error() string { return e.code }

func (k *kms) serve(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	out, err := k.answer(r)
	if refused := (kmsError{}); errors.As(err, &refused) {
		w.WriteHeader(http.StatusBadRequest)
		out = map[string]any{"__type": refused.code, "message": refused.message}
	} else if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if err := json.NewEncoder(w).Encode(out); err != nil {
		panic(http.ErrAbortHandler) // the client has gone
	}
}

func (k *kms) answer(r *http.Request) (map[string]any, error) {
	var in kmsRequest
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		return nil, kmsError{"SerializationException", err.Error()}
	}
	signed := r.Header.Get("Authorization")
	if !strings.HasPrefix(signed, "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/") ||
		!strings.Contains(signed, "/eu-central-1/kms/aws4_request") {
		return nil, kmsError{"UnrecognizedClientException", "The security token included in the request is invalid."}
	}
	if k.refusal != (kmsError{}) {
		return nil, k.refusal
	}
	id := in.KeyId
	if alias, ok := strings.CutPrefix(id, "alias/"); ok {
		id = k.aliases[alias]
	}
	key := k.keys[id]
	switch operation := r.Header.Get("X-Amz-Target"); {
	case key == nil:
		return nil, kmsError{"NotFoundException", "Alias arn:aws:kms:eu-central-1:111122223333:" + in.KeyId + " is not found."}
	case operation == "TrentService.GetPublicKey":
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		_, isRSA := key.(*rsa.PrivateKey)
		spec := map[bool]string{true: "RSA_2048", false: "ECC_NIST_P256"}[isRSA] // its size is not looked at
		return map[string]any{"KeyId": id, "KeySpec": spec, "KeyUsage": k.usages[id], "PublicKey": der}, err
	case operation == "TrentService.Sign":
		if k.usages[id] != "SIGN_VERIFY" {
			return nil, kmsError{"InvalidKeyUsageException", id + " key usage is " + k.usages[id] + " which is not valid for Sign."}
		}
		signature, err := kmsSign(key, in)
		return map[string]any{"KeyId": id, "Signature": signature, "SigningAlgorithm": in.SigningAlgorithm}, err
	}
	return nil, kmsError{"UnknownOperationException", ""}
}

func kmsSign(key crypto.Signer, in kmsRequest) ([]byte, error) {
	hash := map[string]crypto.Hash{
		"ECDSA_SHA_256": crypto.SHA256, "ECDSA_SHA_384": crypto.SHA384, "ECDSA_SHA_512": crypto.SHA512,
		"RSASSA_PKCS1_V1_5_SHA_256": crypto.SHA256,
	}[in.SigningAlgorithm]
	if hash == 0 || in.MessageType != "DIGEST" || len(in.Message) != hash.Size() {
		return nil, kmsError{"ValidationException", "Digest is invalid length for algorithm " + in.SigningAlgorithm}
	}
	return key.Sign(rand.Reader, in.Message, hash)
}

func generate(algorithm string) (crypto.Signer, error) {
	curves := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}
	if curve := curves[algorithm]; curve != nil {
		return ecdsa.GenerateKey(curve, rand.Reader)
	}
	return rsa.GenerateKey(rand.Reader, map[string]int{"RSA-2048": 2048, "RSA-3072": 3072}[algorithm])
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/openbao/openbao/api/v2"
	"go.step.sm/crypto/kms/uri"
)

// transit is the backend of openbao and vault URIs: one version of one key of the transit engine.
// The token is read from its file before each call, so that an agent may renew it.
type transit struct {
	client     *api.Client
	mount, key string
	version    int
	tokenFile  string
	algorithm  string
}

func newTransit(u *uri.URI, algorithm string) (backend, error) {
	if err := unknownAttributes(u, "mount", "key", "version", "address", "namespace", "token-source", "ca-source"); err != nil {
		return nil, err
	}
	version, err := strconv.Atoi(u.Get("version"))
	t := &transit{mount: u.Get("mount"), key: u.Get("key"), version: version, tokenFile: u.Get("token-source"), algorithm: algorithm}
	address := u.Get("address")
	switch {
	case err != nil || version < 1:
		return nil, errors.New("want version, the number of the key's version: a rotation inside the engine must not change who signs")
	case t.mount == "" || t.key == "" || strings.Contains(t.key, "/"):
		return nil, errors.New("want mount, the path of the transit engine, and key, the name of the key")
	case !strings.HasPrefix(address, "https://") && !strings.HasPrefix(address, "http://127.0.0.1:"):
		return nil, errors.New("want address, an https URL (http on 127.0.0.1 alone)")
	case t.tokenFile == "":
		return nil, errors.New("want token-source, the path of a file with a token")
	}
	config := api.NewConfig()
	config.DisableEnvironment = true
	config.Address, config.MaxRetries, config.Timeout = address, 0, signTimeout
	if ca := u.Get("ca-source"); ca != "" {
		if err := config.ConfigureTLS(&api.TLSConfig{CACert: ca}); err != nil {
			return nil, fmt.Errorf("ca-source: %w", err)
		}
	}
	if t.client, err = api.NewClient(config); err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	if namespace := u.Get("namespace"); namespace != "" {
		t.client.SetNamespace(namespace)
	}
	return t, nil
}

// call makes one request. Errors name the path, the status and the server's words.
func (t *transit) call(ctx context.Context, operation string, data map[string]any) (map[string]any, error) {
	token, err := os.ReadFile(t.tokenFile)
	if err != nil {
		return nil, fmt.Errorf("token-source: %w", err)
	}
	client := t.client.WithNamespace(t.client.Namespace()) // a copy, for its token
	client.SetToken(string(bytes.TrimSpace(token)))
	where := path.Join(t.mount, operation)
	var answer *api.Secret
	if data == nil {
		answer, err = client.Logical().ReadWithContext(ctx, where)
	} else {
		answer, err = client.Logical().WriteWithContext(ctx, where, data)
	}
	if refused := (*api.ResponseError)(nil); errors.As(err, &refused) {
		advice := "see the log of the server"
		if refused.StatusCode == http.StatusForbidden {
			advice = "let the token read " + path.Join(t.mount, "keys", t.key) + " and update " + path.Join(t.mount, "sign", t.key, "*")
		}
		return nil, fmt.Errorf("%s: HTTP %d: %s: %s", where, refused.StatusCode, strings.Join(refused.Errors, "; "), advice)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: check address and ca-source", where, err)
	}
	if answer == nil {
		return nil, nil //nolint:nilnil // as the engine answers where there is nothing
	}
	return answer.Data, nil
}

func (t *transit) find(ctx context.Context) (crypto.PublicKey, error) {
	data, err := t.call(ctx, "keys/"+t.key, nil)
	if err != nil {
		return nil, err
	}
	if data == nil {
		return nil, errors.New("the engine has no key of that name: correct mount or key, or create one")
	}
	versions, _ := data["keys"].(map[string]any)
	version, _ := versions[strconv.Itoa(t.version)].(map[string]any)
	text, _ := version["public_key"].(string)
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, fmt.Errorf("the key has no version %d that signs tokens: its type is %v, its newest version is %v", t.version, data["type"], data["latest_version"])
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("public half of version %d: %w", t.version, err)
	}
	return key, nil
}

func (t *transit) sign(ctx context.Context, input []byte) ([]byte, error) {
	hash := map[string]string{"ES384": "sha2-384", "ES512": "sha2-512"}[t.algorithm]
	if hash == "" {
		hash = "sha2-256"
	}
	data, err := t.call(ctx, "sign/"+t.key+"/"+hash, map[string]any{
		"input": base64.StdEncoding.EncodeToString(input), "key_version": t.version,
		"marshaling_algorithm": "jws", "signature_algorithm": "pkcs1v15",
	})
	if err != nil {
		return nil, err
	}
	text, _ := data["signature"].(string) // vault:v1:SEGMENT
	signature, err := base64.RawURLEncoding.DecodeString(text[strings.LastIndexByte(text, ':')+1:])
	if err != nil || len(signature) == 0 {
		return nil, errors.New("the engine's answer has no signature in the form of a JWS")
	}
	return signature, nil
}

func (t *transit) create(ctx context.Context) error {
	found, err := t.call(ctx, "keys/"+t.key, nil)
	if err != nil {
		return err
	}
	if found != nil {
		return errors.New("the engine has a key of that name")
	}
	kind := "rsa-"
	if isEC(t.algorithm) {
		kind = "ecdsa-p"
	}
	_, err = t.call(ctx, "keys/"+t.key, map[string]any{
		"type": kind + strconv.Itoa(bitsOf[t.algorithm]), "exportable": false, "allow_plaintext_backup": false,
	})
	return err
}

func (t *transit) close() {
	if transport, ok := t.client.CloneConfig().HttpClient.Transport.(*http.Transport); ok {
		transport.CloseIdleConnections()
	}
}

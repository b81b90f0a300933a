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
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/openbao/openbao/api/v2"
	"go.step.sm/crypto/kms/uri"
)

// transit is the backend of openbao and vault URIs: one version of one key of the transit engine.
// The token is read from its file before each call, so that an agent may renew it.
type transit struct {
	client              *api.Client
	mount, key, version string
	tokenFile           string
	public              crypto.PublicKey
}

var transitAttributes = []string{
	"mount, the path of the transit engine", "key, the name of the key",
	"version, the number of the key's version: a rotation inside the engine must not change who signs",
	"address, an https URL (http on 127.0.0.1 alone)", "token-source, the path of a file with a token",
}

func openTransit(u *uri.URI, _ string) (crypto.Signer, error) {
	address := u.Get("address")
	if !strings.HasPrefix(address, "https://") && !strings.HasPrefix(address, "http://127.0.0.1:") {
		return nil, errors.New("want " + transitAttributes[3])
	}
	config := api.NewConfig()
	config.DisableEnvironment = true
	config.Address, config.MaxRetries, config.Timeout = address, 0, signTimeout
	if err := config.ConfigureTLS(&api.TLSConfig{CACert: u.Get("ca-source")}); err != nil {
		return nil, fmt.Errorf("ca-source: %w", err)
	}
	client, err := api.NewClient(config)
	if err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	t := &transit{
		client: client.WithNamespace(u.Get("namespace")), tokenFile: u.Get("token-source"),
		mount: u.Get("mount"), key: u.Get("key"), version: u.Get("version"),
	}
	t.public, err = t.find()
	return t, err
}

// call makes one request. Errors name the path, the status and the server's words.
func (t *transit) call(operation string, data map[string]any) (map[string]any, error) {
	token, err := readFile(t.tokenFile)
	if err != nil {
		return nil, fmt.Errorf("token-source: %w", err)
	}
	t.client.SetToken(string(bytes.TrimSpace(token)))
	where := path.Join(t.mount, operation)
	var answer *api.Secret
	if data == nil {
		answer, err = t.client.Logical().ReadWithContext(context.Background(), where)
	} else {
		answer, err = t.client.Logical().WriteWithContext(context.Background(), where, data)
	}
	refused, _ := errors.AsType[*api.ResponseError](err)
	switch {
	case refused != nil && refused.StatusCode == http.StatusForbidden:
		return nil, fmt.Errorf("%s: HTTP 403: %s: let the token read %[3]s/keys/%[4]s and update %[3]s/sign/%[4]s/*", where,
			strings.Join(refused.Errors, "; "), t.mount, t.key)
	case refused != nil:
		return nil, fmt.Errorf("%s: HTTP %d: %s: see the log of the server", where, refused.StatusCode, strings.Join(refused.Errors, "; "))
	case err != nil:
		return nil, fmt.Errorf("%s: %w: check address and ca-source", where, err)
	case answer == nil:
		return nil, errors.New("the engine has no key of that name: correct mount or key")
	}
	return answer.Data, nil
}

func (t *transit) find() (crypto.PublicKey, error) {
	data, err := t.call("keys/"+t.key, nil)
	if err != nil {
		return nil, err
	}
	versions, _ := data["keys"].(map[string]any)
	version, _ := versions[t.version].(map[string]any)
	text, _ := version["public_key"].(string)
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, fmt.Errorf("the key has no version %s that signs tokens: its type is %v, its newest version is %v", t.version,
			data["type"], data["latest_version"])
	}
	return x509.ParsePKIXPublicKey(block.Bytes)
}

// Public implements crypto.Signer.
func (t *transit) Public() crypto.PublicKey { return t.public }

// Sign implements crypto.Signer.
func (t *transit) Sign(_ io.Reader, digest []byte, _ crypto.SignerOpts) ([]byte, error) {
	data, err := t.call("sign/"+t.key+"/sha2-"+strconv.Itoa(8*len(digest)), map[string]any{
		"input": base64.StdEncoding.EncodeToString(digest), "prehashed": true, "key_version": t.version, "signature_algorithm": "pkcs1v15",
	})
	if err != nil {
		return nil, err
	}
	text, _ := data["signature"].(string) // vault:v1:BASE64
	return base64.StdEncoding.DecodeString(text[strings.LastIndexByte(text, ':')+1:])
}

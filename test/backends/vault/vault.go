// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package vault runs the real transit engine of Vault behind the part of Vault's HTTP API that leads
// to it: the whole server does not run with published modules.
package vault

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/vault/builtin/logical/transit"
	"github.com/hashicorp/vault/sdk/framework"
	"github.com/hashicorp/vault/sdk/logical"
)

// Token is the one that is accepted.
const Token = "token-of-the-vault-7251"

// Vault is a running engine.
type Vault struct {
	// TokenFile and CAFile are what a client needs.
	TokenFile, CAFile string
	// Namespace is where the engine is mounted; empty for the root.
	Namespace string

	engine  logical.Backend
	storage logical.Storage
	server  *httptest.Server
	fault   atomic.Pointer[Fault]
}

// Fault is what goes wrong with every request.
type Fault struct {
	Status  int           // in place of an answer
	Delay   time.Duration // before the answer
	Garbage bool          // in place of a signature
	Key     string        // in place of the one that is asked for
}

// Start starts an engine, with its files in a directory.
func Start(ctx context.Context, dir string) (*Vault, error) {
	v := &Vault{storage: &logical.InmemStorage{}, TokenFile: filepath.Join(dir, "token"), CAFile: filepath.Join(dir, "ca.crt")}
	v.Heal()
	config := &logical.BackendConfig{Logger: hclog.NewNullLogger(), System: &logical.StaticSystemView{}, StorageView: v.storage}
	engine, err := transit.Backend(ctx, config)
	if err != nil {
		return nil, err
	}
	for _, path := range engine.Paths {
		if _, creates := path.Operations[logical.CreateOperation]; creates && path.ExistenceCheck == nil {
			// This version panics without one (sdk/framework).
			path.ExistenceCheck = func(context.Context, *logical.Request, *framework.FieldData) (bool, error) { return true, nil }
		}
	}
	if err := engine.Setup(ctx, config); err != nil {
		return nil, err
	}
	v.engine = engine
	v.server = httptest.NewUnstartedServer(http.HandlerFunc(v.serve))
	v.server.Config.ErrorLog = log.New(io.Discard, "", 0) // clients go in the middle of a handshake
	v.server.StartTLS()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: v.server.Certificate().Raw})
	return v, errors.Join(os.WriteFile(v.TokenFile, []byte(Token+"\n"), 0o600), os.WriteFile(v.CAFile, ca, 0o600))
}

// Stop ends it. Connections are refused from then on.
func (v *Vault) Stop() { v.server.Close() }

// Break makes all requests go wrong, until Heal.
func (v *Vault) Break(f Fault) { v.fault.Store(&f) }

// Heal undoes Break.
func (v *Vault) Heal() { v.fault.Store(&Fault{}) }

// URI names a key of the engine.
func (v *Vault) URI(name string) string {
	return fmt.Sprintf("openbao:mount=transit;key=%s;version=1?address=%s&token-source=%s&ca-source=%s", name, v.server.URL,
		v.TokenFile, v.CAFile)
}

// Call makes a request of the engine without its HTTP API.
func (v *Vault) Call(ctx context.Context, operation logical.Operation, path string, data map[string]any) error {
	response, err := v.engine.HandleRequest(ctx, &logical.Request{Path: path, Storage: v.storage, Operation: operation, Data: data})
	if err == nil && response.IsError() {
		err = response.Error()
	}
	return err
}

// refusal is an answer of Vault without data.
type refusal struct {
	status int
	reason string
}

func (r refusal) Error() string { return r.reason }

func (v *Vault) serve(w http.ResponseWriter, r *http.Request) {
	data, err := v.answer(r)
	body := map[string]any{"data": data}
	if err != nil {
		refused := refusal{http.StatusInternalServerError, err.Error()}
		_ = errors.As(err, &refused)
		body = map[string]any{"errors": []string{refused.reason}}
		w.WriteHeader(refused.status)
	}
	if err := json.NewEncoder(w).Encode(body); err != nil {
		panic(http.ErrAbortHandler) // the client has gone
	}
}

// answer does as Vault's HTTP layer, in the cases that occur here.
func (v *Vault) answer(r *http.Request) (map[string]any, error) {
	fault := v.fault.Load()
	select {
	case <-time.After(fault.Delay):
	case <-r.Context().Done():
	}
	switch {
	case fault.Status == http.StatusForbidden, r.Header.Get("X-Vault-Token") != Token:
		return nil, refusal{http.StatusForbidden, "permission denied"}
	case fault.Status != 0:
		return nil, refusal{fault.Status, "Vault is sealed"}
	case r.Header.Get("X-Vault-Namespace") != v.Namespace:
		return nil, refusal{http.StatusNotFound, "no handler for route"}
	}
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/transit/"), "/")
	if fault.Key != "" {
		path[1] = fault.Key
	}
	request := &logical.Request{Path: strings.Join(path, "/"), Storage: v.storage, Operation: logical.ReadOperation}
	if r.Method != http.MethodGet {
		request.Operation = logical.UpdateOperation
		if err := json.NewDecoder(r.Body).Decode(&request.Data); err != nil {
			return nil, refusal{http.StatusBadRequest, err.Error()}
		}
		if checked, found, err := v.engine.HandleExistenceCheck(context.WithoutCancel(r.Context()), request); err == nil && checked &&
			!found {
			request.Operation = logical.CreateOperation
		}
	}
	response, err := v.engine.HandleRequest(r.Context(), request)
	switch {
	case response != nil && response.IsError():
		return nil, refusal{http.StatusBadRequest, response.Error().Error()}
	case err != nil:
		return nil, err
	case response == nil:
		return nil, refusal{http.StatusNotFound, ""}
	}
	if fault.Garbage && response.Data["signature"] != nil {
		response.Data["signature"] = "vault:v1:Z2FyYmFnZQ"
	}
	return response.Data, nil
}

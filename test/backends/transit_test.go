// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package backends

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/vault/builtin/logical/transit"
	"github.com/hashicorp/vault/sdk/framework"
	"github.com/hashicorp/vault/sdk/logical"
)

const vaultToken = "token-of-the-vault-7251"

// A vault is the transit engine behind the part of Vault's HTTP API that leads to it.
type vault struct {
	engine  logical.Backend
	storage logical.Storage
	server  *httptest.Server
	// failure is a status with which every request is answered; 0 for none.
	failure atomic.Int32
	// namespace is where the engine is mounted; empty for the root.
	namespace         string
	tokenFile, caFile string
}

func newVault(t *testing.T) *vault {
	t.Helper()
	v := &vault{storage: &logical.InmemStorage{}, tokenFile: write(t, filepath.Join(t.TempDir(), "token"), vaultToken+"\n")}
	config := &logical.BackendConfig{Logger: hclog.NewNullLogger(), System: &logical.StaticSystemView{}, StorageView: v.storage}
	engine, err := transit.Backend(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range engine.Paths {
		if _, creates := path.Operations[logical.CreateOperation]; creates && path.ExistenceCheck == nil {
			// This version panics without one (sdk/framework).
			path.ExistenceCheck = func(context.Context, *logical.Request, *framework.FieldData) (bool, error) { return true, nil }
		}
	}
	if err := engine.Setup(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	v.engine = engine
	v.server = httptest.NewTLSServer(http.HandlerFunc(v.serve))
	t.Cleanup(v.server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: v.server.Certificate().Raw})
	v.caFile = write(t, filepath.Join(t.TempDir(), "ca.crt"), string(ca))
	return v
}

// uri names a key of the engine.
func (v *vault) uri(name string) string {
	return fmt.Sprintf("openbao:mount=transit;key=%s;version=1?address=%s&token-source=%s&ca-source=%s", name, v.server.URL, v.tokenFile, v.caFile)
}

// call makes a request of the engine without its HTTP API.
func (v *vault) call(t *testing.T, operation logical.Operation, path string, data map[string]any) {
	t.Helper()
	response, err := v.engine.HandleRequest(t.Context(), &logical.Request{Path: path, Storage: v.storage, Operation: operation, Data: data})
	if err != nil || response.IsError() {
		t.Fatalf("%s %s: %v %v", operation, path, response, err)
	}
}

// serve answers as Vault's HTTP layer does, in the cases that occur here.
func (v *vault) serve(w http.ResponseWriter, r *http.Request) {
	answer := func(status int, body any) {
		w.WriteHeader(status)
		if err := json.NewEncoder(w).Encode(body); err != nil {
			panic(http.ErrAbortHandler) // the client has gone
		}
	}
	if failure := v.failure.Load(); failure != 0 {
		answer(int(failure), map[string]any{"errors": []string{"Vault is sealed"}})
		return
	}
	if r.Header.Get("X-Vault-Namespace") != v.namespace {
		answer(http.StatusNotFound, map[string]any{"errors": []string{"no handler for route"}})
		return
	}
	if r.Header.Get("X-Vault-Token") != vaultToken {
		answer(http.StatusForbidden, map[string]any{"errors": []string{"permission denied"}})
		return
	}
	request := &logical.Request{Path: strings.TrimPrefix(r.URL.Path, "/v1/transit/"), Storage: v.storage, Operation: logical.ReadOperation}
	if r.Method != http.MethodGet {
		request.Operation = logical.UpdateOperation
		if err := json.NewDecoder(r.Body).Decode(&request.Data); err != nil {
			answer(http.StatusBadRequest, map[string]any{"errors": []string{err.Error()}})
			return
		}
		if checked, found, err := v.engine.HandleExistenceCheck(context.WithoutCancel(r.Context()), request); err == nil && checked && !found {
			request.Operation = logical.CreateOperation
		}
	}
	response, err := v.engine.HandleRequest(r.Context(), request)
	switch {
	case response != nil && response.IsError():
		answer(http.StatusBadRequest, map[string]any{"errors": []string{response.Error().Error()}})
	case err != nil:
		answer(http.StatusInternalServerError, map[string]any{"errors": []string{err.Error()}})
	case response == nil:
		answer(http.StatusNotFound, map[string]any{"errors": []string{}})
	default:
		answer(http.StatusOK, map[string]any{"data": response.Data})
	}
}

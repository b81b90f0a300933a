// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signertest

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	externaljwtv1 "k8s.io/externaljwt/apis/v1"

	"sa-controller-manager/internal/testutil"
)

// Foreign is a KEP-740 signer that knows nothing of this project: its EC key on P-256 has an ID of its
// own choice, and its socket is gone while it is stopped.
type Foreign struct {
	externaljwtv1.UnimplementedExternalJWTSignerServer

	path   string
	mu     sync.Mutex
	does   Behaviour
	server *grpc.Server
}

// Behaviour is what a Foreign does. Tests change it.
type Behaviour struct {
	// PEM is the key that it signs with, and Listed are the public keys of FetchKeys.
	PEM    []byte
	Listed []*externaljwtv1.Key
	// Header is the protected header.
	Header string
	// Break changes an answer.
	Break func(*externaljwtv1.SignJWTResponse)
	// Hang never answers. Fails is the code of an error with the claims in its text. NoLegacy refuses the
	// claims of token Secrets.
	Hang     bool
	Fails    codes.Code
	NoLegacy bool
	// MaxSeconds is the longest life of a token.
	MaxSeconds int64
}

// ServeForeign is NewForeign until the test ends.
func ServeForeign(tb testing.TB, path, keyID string, key []byte) *Foreign {
	tb.Helper()
	f := testutil.Get(NewForeign(path, keyID, key))(tb)
	tb.Cleanup(f.Stop)
	return f
}

// NewForeign starts a signer at path, with a key on P-256 in SEC 1 or PKCS#8 form.
func NewForeign(path, keyID string, key []byte) (*Foreign, error) {
	listed, err := listedKey(keyID, key)
	if err != nil {
		return nil, err
	}
	f := &Foreign{path: path, does: Behaviour{
		PEM: key, Listed: []*externaljwtv1.Key{listed},
		Header: fmt.Sprintf(`{"alg":"ES256","kid":%q,"typ":"JWT"}`, keyID), MaxSeconds: 1 << 32,
	}}
	return f, f.start()
}

// ListedKey is an entry of FetchKeys.
func ListedKey(tb testing.TB, keyID string, key []byte) *externaljwtv1.Key {
	tb.Helper()
	return testutil.Get(listedKey(keyID, key))(tb)
}

func listedKey(keyID string, key []byte) (*externaljwtv1.Key, error) {
	private, err := jwt.ParseECPrivateKeyFromPEM(key)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(private.Public())
	return &externaljwtv1.Key{KeyId: keyID, Key: der}, err
}

// Set changes what it does from now on.
func (f *Foreign) Set(change func(*Behaviour)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.does)
}

func (f *Foreign) now() Behaviour {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.does
}

// Start serves again after Stop.
func (f *Foreign) Start(tb testing.TB) {
	tb.Helper()
	testutil.Must(tb, f.start())
}

func (f *Foreign) start() error {
	listener, err := net.Listen("unix", f.path)
	if err != nil {
		return err
	}
	f.server = grpc.NewServer()
	externaljwtv1.RegisterExternalJWTSignerServer(f.server, f)
	go func() { _ = f.server.Serve(listener) }()
	return nil
}

// Stop ends all connections and removes the socket.
func (f *Foreign) Stop() { f.server.Stop() }

// Sign implements the service.
func (f *Foreign) Sign(ctx context.Context, request *externaljwtv1.SignJWTRequest) (*externaljwtv1.SignJWTResponse, error) {
	does := f.now()
	payload, err := base64.RawURLEncoding.DecodeString(request.GetClaims())
	switch {
	case err != nil:
		return nil, status.Error(codes.InvalidArgument, "claims")
	case does.Hang:
		<-ctx.Done()
		return nil, ctx.Err()
	case does.Fails != codes.OK:
		return nil, status.Error(does.Fails, "cannot sign "+request.GetClaims())
	case does.NoLegacy && strings.Contains(string(payload), `"kubernetes/serviceaccount"`):
		return nil, status.Error(codes.InvalidArgument, "a legacy token: "+request.GetClaims())
	}
	key, err := jwt.ParseECPrivateKeyFromPEM(does.PEM)
	if err != nil {
		return nil, err
	}
	header := base64.RawURLEncoding.EncodeToString([]byte(does.Header))
	signature, err := jwt.SigningMethodES256.Sign(header+"."+request.GetClaims(), key)
	if err != nil {
		return nil, err
	}
	response := &externaljwtv1.SignJWTResponse{Header: header, Signature: base64.RawURLEncoding.EncodeToString(signature)}
	if does.Break != nil {
		does.Break(response)
	}
	return response, nil
}

// FetchKeys implements the service.
func (f *Foreign) FetchKeys(context.Context, *externaljwtv1.FetchKeysRequest) (*externaljwtv1.FetchKeysResponse, error) {
	return &externaljwtv1.FetchKeysResponse{Keys: f.now().Listed, DataTimestamp: timestamppb.Now(), RefreshHintSeconds: 5}, nil
}

// Metadata implements the service.
func (f *Foreign) Metadata(context.Context, *externaljwtv1.MetadataRequest) (*externaljwtv1.MetadataResponse, error) {
	return &externaljwtv1.MetadataResponse{MaxTokenExpirationSeconds: f.now().MaxSeconds}, nil
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/aws/smithy-go"
	"go.step.sm/crypto/kms/apiv1"
	_ "go.step.sm/crypto/kms/awskms" // each registers itself
	_ "go.step.sm/crypto/kms/azurekms"
	_ "go.step.sm/crypto/kms/cloudkms"
	"go.step.sm/crypto/kms/uri"
)

// cloud is a key of awskms, azurekms and cloudkms URIs, in a cloud's key management service, through
// the key managers of go.step.sm/crypto, which end each call after 15 s. Credentials come from the default
// credential chain of the cloud's SDK, never from the URI.
type cloud struct{ crypto.Signer }

func openCloud(u *uri.URI, _ string) (crypto.Signer, error) {
	if id := u.Get("key-id"); id != strings.ToLower(id) {
		return nil, errors.New("key-id: want lower case, which the library makes of it: name the key by its ID, or by another alias")
	}
	file := u.Get("credentials-file")
	if _, err := os.Stat(file); file != "" && err != nil { // the SDK of AWS would look elsewhere
		return nil, fmt.Errorf("credentials-file: %w", err)
	}
	open, _ := apiv1.LoadKeyManagerNewFunc(apiv1.Type(u.Scheme))
	manager, err := open(context.Background(), apiv1.Options{URI: u.String()})
	if err != nil {
		return nil, inShort(err)
	}
	signer, err := manager.CreateSigner(&apiv1.CreateSignerRequest{SigningKey: u.String()})
	return cloud{signer}, inShort(err)
}

// Sign implements crypto.Signer.
func (c cloud) Sign(random io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	signature, err := c.Signer.Sign(random, digest, opts)
	return signature, inShort(err)
}

// inShort leaves the service's own code and words of an error, without what differs from call to call.
func inShort(err error) error {
	if refused, ok := errors.AsType[smithy.APIError](err); ok {
		return fmt.Errorf("%s: %s", refused.ErrorCode(), refused.ErrorMessage())
	}
	if refused, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return fmt.Errorf("%s: HTTP %d", refused.ErrorCode, refused.StatusCode)
	}
	return err
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/smithy-go"
	"go.step.sm/crypto/kms/uri"
)

// cloud is the backend of awskms URIs: one asymmetric key of AWS KMS. Credentials come from where
// every program with the AWS SDK finds them, never from the URI.
type cloud struct {
	client    *kms.Client
	id        string // key ID, ARN or alias/NAME
	algorithm string
	public    crypto.PublicKey // set by find
}

func newAWSKMS(u *uri.URI, algorithm string) (backend, error) {
	if err := unknownAttributes(u, "key-id", "region", "profile", "credentials-file"); err != nil {
		return nil, err
	}
	c := &cloud{id: u.Get("key-id"), algorithm: algorithm}
	if c.id == "" {
		return nil, errors.New("want key-id: a key ID, an ARN or alias/NAME")
	}
	// A repetition would take longer than the caller waits.
	options := []func(*config.LoadOptions) error{config.WithRegion(u.Get("region")), config.WithRetryMaxAttempts(1)}
	if profile := u.Get("profile"); profile != "" {
		options = append(options, config.WithSharedConfigProfile(profile))
	}
	if file := u.Get("credentials-file"); file != "" {
		if _, err := os.Stat(file); err != nil { // the SDK would look elsewhere
			return nil, fmt.Errorf("credentials-file: %w", err)
		}
		options = append(options, config.WithSharedCredentialsFiles([]string{file}))
	}
	loaded, err := config.LoadDefaultConfig(context.Background(), options...)
	switch {
	case err != nil:
		return nil, err
	case loaded.Region == "":
		return nil, errors.New("want region")
	}
	c.client = kms.NewFromConfig(loaded)
	return c, nil
}

func (c *cloud) find(ctx context.Context) (crypto.PublicKey, error) {
	found, err := c.client.GetPublicKey(ctx, &kms.GetPublicKeyInput{KeyId: &c.id})
	switch {
	case err != nil:
		return nil, inShort(err)
	case found.KeyUsage != types.KeyUsageTypeSignVerify:
		return nil, fmt.Errorf("the usage of the key is %s: want a key of usage %s", found.KeyUsage, types.KeyUsageTypeSignVerify)
	}
	c.public, err = x509.ParsePKIXPublicKey(found.PublicKey)
	return c.public, err
}

func (c *cloud) sign(_ context.Context, input []byte) ([]byte, error) {
	return jws(c, c.algorithm, input)
}

// Public and Sign implement crypto.Signer, once the key is found.
func (c *cloud) Public() crypto.PublicKey { return c.public }

func (c *cloud) Sign(_ io.Reader, digest []byte, _ crypto.SignerOpts) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), signTimeout)
	defer cancel()
	algorithm := types.SigningAlgorithmSpecRsassaPkcs1V15Sha256
	if isEC(c.algorithm) {
		algorithm = types.SigningAlgorithmSpec("ECDSA_SHA_" + strings.TrimPrefix(c.algorithm, "ES"))
	}
	signed, err := c.client.Sign(ctx, &kms.SignInput{
		KeyId: &c.id, Message: digest, MessageType: types.MessageTypeDigest, SigningAlgorithm: algorithm,
	})
	if err != nil {
		return nil, inShort(err)
	}
	return signed.Signature, nil
}

func (c *cloud) create(ctx context.Context) error {
	if !strings.HasPrefix(c.id, "alias/") {
		return errors.New("want key-id=alias/NAME, to create a key")
	}
	_, err := c.client.GetPublicKey(ctx, &kms.GetPublicKeyInput{KeyId: &c.id})
	if err == nil {
		return errors.New("there is a key of that alias")
	}
	if _, missing := errors.AsType[*types.NotFoundException](err); !missing {
		return inShort(err)
	}
	kind := "RSA_"
	if isEC(c.algorithm) {
		kind = "ECC_NIST_P"
	}
	made, err := c.client.CreateKey(ctx, &kms.CreateKeyInput{
		KeySpec: types.KeySpec(kind + strconv.Itoa(bitsOf[c.algorithm])), KeyUsage: types.KeyUsageTypeSignVerify,
	})
	if err != nil {
		return inShort(err)
	}
	if _, err := c.client.CreateAlias(ctx, &kms.CreateAliasInput{AliasName: &c.id, TargetKeyId: made.KeyMetadata.KeyId}); err != nil {
		return fmt.Errorf("name key %s: %w", aws.ToString(made.KeyMetadata.KeyId), inShort(err))
	}
	return nil
}

func (*cloud) close() {}

// inShort leaves the service's own code and words of an error, without what is about the transport.
func inShort(err error) error {
	if refused := smithy.APIError(nil); errors.As(err, &refused) {
		return fmt.Errorf("%s: %s", refused.ErrorCode(), refused.ErrorMessage())
	}
	return err
}

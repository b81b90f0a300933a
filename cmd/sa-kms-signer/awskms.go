// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/smithy-go"
	"go.step.sm/crypto/kms/uri"
)

// cloud is the backend of awskms URIs: one asymmetric key of AWS KMS. Credentials come from the
// default credential chain of the AWS SDK, never from the URI.
type cloud struct {
	client *kms.Client
	id     *string // key ID, ARN or alias/NAME
	// algorithm begins the name of what it signs with.
	algorithm string
}

func newAWSKMS(u *uri.URI) (backend, error) {
	options := []func(*config.LoadOptions) error{
		config.WithRegion(u.Get("region")), config.WithSharedConfigProfile(u.Get("profile")),
		config.WithRetryMaxAttempts(1), // a repetition would take longer than the caller waits
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(signTimeout)),
	}
	if file := u.Get("credentials-file"); file != "" {
		if _, err := os.Stat(file); err != nil { // the SDK would look elsewhere
			return nil, fmt.Errorf("credentials-file: %w", err)
		}
		options = append(options, config.WithSharedCredentialsFiles([]string{file}))
	}
	loaded, err := config.LoadDefaultConfig(context.Background(), options...)
	if err == nil && loaded.Region == "" {
		err = errors.New("want region")
	}
	return &cloud{client: kms.NewFromConfig(loaded), id: aws.String(u.Get("key-id"))}, err
}

func (c *cloud) find() (crypto.PublicKey, error) {
	found, err := c.client.GetPublicKey(context.Background(), &kms.GetPublicKeyInput{KeyId: c.id})
	if err != nil {
		return nil, inShort(err)
	}
	c.algorithm = "RSASSA_PKCS1_V1_5_SHA_"
	if strings.HasPrefix(string(found.KeySpec), "ECC_") {
		c.algorithm = "ECDSA_SHA_"
	}
	return x509.ParsePKIXPublicKey(found.PublicKey)
}

func (c *cloud) sign(digest []byte, hash crypto.Hash) ([]byte, error) {
	signed, err := c.client.Sign(context.Background(), &kms.SignInput{
		KeyId: c.id, Message: digest, MessageType: types.MessageTypeDigest,
		SigningAlgorithm: types.SigningAlgorithmSpec(fmt.Sprint(c.algorithm, 8*hash.Size())),
	})
	if err != nil {
		return nil, inShort(err)
	}
	return signed.Signature, nil
}

func (c *cloud) create(kind string) error {
	if !strings.HasPrefix(*c.id, "alias/") {
		return errors.New("want key-id=alias/NAME, to create a key")
	}
	_, err := c.client.GetPublicKey(context.Background(), &kms.GetPublicKeyInput{KeyId: c.id})
	if err == nil {
		return errors.New("there is a key of that alias")
	}
	if _, missing := errors.AsType[*types.NotFoundException](err); !missing {
		return inShort(err)
	}
	made, err := c.client.CreateKey(context.Background(), &kms.CreateKeyInput{
		KeySpec: types.KeySpec(strings.NewReplacer("P-", "ECC_NIST_P", "RSA-", "RSA_").Replace(kind)), KeyUsage: types.KeyUsageTypeSignVerify,
	})
	if err != nil {
		return inShort(err)
	}
	if _, err := c.client.CreateAlias(context.Background(),
		&kms.CreateAliasInput{AliasName: c.id, TargetKeyId: made.KeyMetadata.KeyId}); err != nil {
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

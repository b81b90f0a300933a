// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	// probePath is the object that Verify tries to write, which has to fail.
	probePath = "/.sa-controller-manager-probe"

	generationKey = "Sa-Ring-Generation"
	hashKey       = "Sa-Ring-Hash"
)

// bucket is a prefix of an S3 bucket.
type bucket struct {
	client         *minio.Client
	bucket, prefix string
	verified       atomic.Bool
}

func newBucket(location *url.URL) (*bucket, error) {
	if location.Host == "" {
		return nil, errors.New("must name a bucket: s3://BUCKET/PREFIX")
	}
	parameters, err := url.ParseQuery(location.RawQuery)
	if err != nil {
		return nil, errors.New("has parameters that cannot be read")
	}
	for name, values := range parameters {
		if name != "endpoint" && name != "region" && name != "ca-file" || len(values) != 1 {
			return nil, fmt.Errorf("has the parameter %q: may have endpoint, region and ca-file, each once", name)
		}
	}
	endpoint := cmp.Or(parameters.Get("endpoint"), "s3.amazonaws.com")
	if strings.Contains(endpoint, "/") {
		return nil, errors.New("has an endpoint that is not HOST or HOST:PORT; it is reached by https")
	}
	transport, err := minio.DefaultTransport(true)
	if err != nil {
		return nil, err
	}
	if transport.TLSClientConfig, err = tlsConfig(parameters.Get("ca-file")); err != nil {
		return nil, err
	}
	client, err := minio.New(endpoint, &minio.Options{
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{},
			&credentials.IAM{Client: &http.Client{Transport: http.DefaultTransport}},
		}),
		Secure: true, Transport: transport, Region: parameters.Get("region"), MaxRetries: 1, // the queue tries again
	})
	if err != nil {
		return nil, fmt.Errorf("has an endpoint that cannot be used: %w", err)
	}
	return &bucket{client: client, bucket: location.Host, prefix: strings.Trim(location.Path, "/")}, nil
}

func tlsConfig(caFile string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile == "" {
		return config, nil
	}
	pem, err := os.ReadFile(caFile)
	if err != nil {
		return nil, fmt.Errorf("has a ca-file that cannot be read: %w", err)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("has a ca-file without a certificate: %s", caFile)
	}
	return config, nil
}

func (b *bucket) Get(ctx context.Context, document string) (*Object, error) {
	name := below(b.prefix, document)
	reader, err := b.client.GetObject(ctx, b.bucket, name, minio.GetObjectOptions{})
	if err != nil {
		return nil, b.failed("read", name, err)
	}
	defer func() { _ = reader.Close() }()
	body, err := readAll(reader)
	if response(err).Code == minio.NoSuchKey {
		return nil, nil //nolint:nilnil // the interface says so
	}
	if err != nil {
		return nil, b.failed("read", name, err)
	}
	info, err := reader.Stat()
	if err != nil {
		return nil, b.failed("read", name, err)
	}
	generation, _ := strconv.ParseInt(info.UserMetadata[generationKey], 10, 64) // 0 if another program has written it
	return &Object{Body: body, Version: info.ETag, Stamp: Stamp{Generation: generation, Hash: info.UserMetadata[hashKey]}}, nil
}

func (b *bucket) Put(ctx context.Context, document string, old *Object, body []byte, stamp Stamp, headers Headers) error {
	options := minio.PutObjectOptions{
		ContentType: headers.ContentType, CacheControl: headers.CacheControl,
		UserMetadata: map[string]string{hashKey: stamp.Hash},
	}
	if stamp.Generation != 0 {
		options.UserMetadata[generationKey] = strconv.FormatInt(stamp.Generation, 10)
	}
	if old == nil {
		options.SetMatchETagExcept("*")
	} else {
		options.SetMatchETag(old.Version)
	}
	return b.put(ctx, below(b.prefix, document), body, options)
}

func (b *bucket) put(ctx context.Context, name string, body []byte, options minio.PutObjectOptions) error {
	options.DisableMultipart = true
	_, err := b.client.PutObject(ctx, b.bucket, name, bytes.NewReader(body), int64(len(body)), options)
	switch code := response(err).StatusCode; {
	case err == nil:
		return nil
	case code == http.StatusPreconditionFailed, code == http.StatusConflict:
		return fmt.Errorf("write %s/%s: %w", b.bucket, name, ErrConflict)
	}
	return b.failed("write", name, err)
}

// Verify tries, until it has succeeded once, a write that must fail: with an ETag that no object has.
func (b *bucket) Verify(ctx context.Context) error {
	if b.verified.Load() {
		return nil
	}
	name := below(b.prefix, probePath)
	var options minio.PutObjectOptions
	options.SetMatchETag("00000000000000000000000000000000")
	err := b.put(ctx, name, nil, options)
	if errors.Is(err, ErrConflict) || response(err).StatusCode == http.StatusNotFound {
		b.verified.Store(true)
		return nil
	}
	if err != nil {
		return err
	}
	if err := b.client.RemoveObject(ctx, b.bucket, name, minio.RemoveObjectOptions{}); err != nil {
		return b.failed("remove", name, err)
	}
	return errors.New("the store ignores If-Match, and two writers would overwrite each other's keys: nothing is published there")
}

func (b *bucket) PerHost() bool { return false }

func (b *bucket) String() string { return "s3://" + below("", b.bucket+"/"+b.prefix) }

// failed names the object. The library's errors have no credentials.
func (b *bucket) failed(verb, name string, err error) error {
	return fmt.Errorf("%s %s/%s: %w", verb, b.bucket, name, err)
}

// response returns the answer of the store, or the zero value if it has not answered.
func response(err error) minio.ErrorResponse {
	answer, _ := errors.AsType[minio.ErrorResponse](err)
	return answer
}

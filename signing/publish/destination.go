// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
)

// Parse reads a destination: file:///DIRECTORY, or s3://BUCKET/PREFIX with the parameters endpoint
// (HOST:PORT, served by https), region and ca-file. It connects to nothing.
func Parse(text string) (Destination, error) {
	location, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("is not a URL") // the error would repeat it
	}
	if location.User != nil || location.Fragment != "" {
		return nil, errors.New("must have neither a user nor a fragment: credentials come from the environment or the credentials file")
	}
	switch location.Scheme {
	case "file":
		if location.Host != "" || location.RawQuery != "" || !filepath.IsAbs(location.Path) {
			return nil, errors.New("must be file:// and the absolute path of a directory")
		}
		return directory(filepath.Clean(location.Path)), nil
	case "s3":
		return newBucket(location)
	}
	return nil, fmt.Errorf("has the scheme %q: must be file:///DIRECTORY or s3://BUCKET/PREFIX", location.Scheme)
}

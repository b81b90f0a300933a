// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxInput is more than any token, in bytes.
const maxInput = 128 << 10

// Read reads a token, without the white space around it and the "Bearer " that HTTP puts in front. Errors hold nothing
// of it.
func Read(input io.Reader) (string, error) {
	data, err := io.ReadAll(io.LimitReader(input, maxInput+1))
	if err != nil {
		return "", err
	}
	if len(data) > maxInput {
		return "", fmt.Errorf("it is larger than %d bytes", maxInput)
	}
	token := strings.TrimSpace(string(data))
	if scheme, rest, found := strings.Cut(token, " "); found && strings.EqualFold(scheme, "bearer") {
		token = strings.TrimSpace(rest)
	}
	if token == "" {
		return "", errors.New("it is empty")
	}
	if decoded, err := base64.StdEncoding.DecodeString(token); err == nil && bytes.Count(decoded, []byte(".")) == 2 {
		return "", errors.New("it is encoded as in a Secret, pipe it through base64 -d")
	}
	return token, nil
}

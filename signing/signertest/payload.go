// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signertest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Issuer is that of every payload here.
const Issuer = "https://issuer.example"

// Payload returns the payload segment of a bound token of one hour, as kube-apiserver would send it.
// Payloads of different n differ: n is in the ID, and one audience is n characters longer.
func Payload(n int) string { return payload(n, time.Hour) }

// PayloadFor is Payload(0) of a token that lives for a given time.
func PayloadFor(lifetime time.Duration) string { return payload(0, lifetime) }

func payload(n int, lifetime time.Duration) string {
	now := time.Now()
	return Encode(map[string]any{
		"aud": []string{Issuer, "other-" + strings.Repeat("a", n)},
		"exp": now.Add(lifetime).Unix(),
		"iat": now.Unix(),
		"iss": Issuer,
		"jti": fmt.Sprintf("00000000-0000-4000-8000-%012d", n),
		"kubernetes.io": map[string]any{
			"namespace":      "default",
			"pod":            map[string]any{"name": "web-0", "uid": "5f1f3f5e-6d0f-4b39-8f47-1c1b1d3c7a11"},
			"serviceaccount": map[string]any{"name": "builder", "uid": "0b1d7f0c-41fb-4b5a-9c62-34e0b4a3e7a9"},
			"warnafter":      now.Add(time.Hour).Unix(),
		},
		"nbf": now.Unix(),
		"sub": "system:serviceaccount:default:builder",
	})
}

// Encode makes a payload segment of claims.
func Encode(claims map[string]any) string {
	encoded, err := json.Marshal(claims)
	if err != nil {
		panic(err) // claims of a test have a JSON form
	}
	return base64.RawURLEncoding.EncodeToString(encoded)
}

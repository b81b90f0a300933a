// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"os"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	mounted = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	pace    = 100 * time.Millisecond
	// perReport is how many calls are made between two lines of the log.
	perReport = 10
)

// report is a line of the log.
type report struct {
	Calls, Failed int
	First         string // what the first call failed with
	KeyID         string // of the mounted token
}

// askForEver counts from the first call that succeeds: what is before is about a node whose
// kube-proxy has just started.
func askForEver() error {
	if _, err := whoAmI(); err != nil {
		return err
	}
	client, _, err := newClient()
	if err != nil {
		return err
	}
	var told report
	for range time.Tick(pace) {
		ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
		_, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		cancel()
		if told.Calls++; err != nil {
			if told.Failed++; told.Failed == 1 {
				told.First = err.Error()
			}
		}
		if told.Calls%perReport != 0 {
			continue
		}
		told.KeyID = keyID()
		if err := json.NewEncoder(os.Stdout).Encode(told); err != nil {
			return err
		}
	}
	return nil
}

// keyID is that of the mounted token, "" if it cannot be read.
func keyID() string {
	token, err := os.ReadFile(mounted)
	if err != nil {
		return ""
	}
	segment, _, _ := strings.Cut(string(token), ".")
	data, _ := base64.RawURLEncoding.DecodeString(segment)
	var header struct {
		KeyID string `json:"kid"`
	}
	_ = json.Unmarshal(data, &header)
	return header.KeyID
}

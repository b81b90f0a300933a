// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command apicheck runs in a Pod and asks kube-apiserver who it is, with the token and
// the root CA that were mounted, as any client in a cluster does, or with the root CA in
// the file that CA_FILE names. It prints the answer as one line of JSON and ends: with 0,
// or with 1 if there was none in time.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// waitTimeout is for a node whose kube-proxy has just started.
const waitTimeout = time.Minute

func main() {
	user, err := whoAmI()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(user); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Getenv("STAY") != "" { // as a Deployment's Pod does
		select {}
	}
}

func whoAmI() (authenticationv1.UserInfo, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	if file := os.Getenv("CA_FILE"); file != "" {
		config.CAFile = file
	}
	// kube-apiserver warns of tokens that the account refers to; the log of the container
	// is the answer and nothing else.
	config.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	var review *authenticationv1.SelfSubjectReview
	var last error
	err = wait.PollUntilContextTimeout(context.Background(), time.Second, waitTimeout, true, func(ctx context.Context) (bool, error) {
		review, last = client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
			metav1.CreateOptions{})
		return last == nil, nil
	})
	if err != nil {
		return authenticationv1.UserInfo{}, fmt.Errorf("ask %s who I am: %w", config.Host, last)
	}
	return review.Status.UserInfo, nil
}

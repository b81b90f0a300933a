// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package tokens_test

import (
	"context"
	"fmt"
	"os"

	"sa-controller-manager/signing"
	"sa-controller-manager/tokens"
)

// A legacy token is signed with the key of a file, as for a token Secret, and verified. Whether it is
// valid now only kube-apiserver knows, which looks up the account and the Secret.
func Example() {
	file, err := os.ReadFile("../signing/testkeys/keys/rsa-2048.pem") // as kubeadm's sa.key
	if err != nil {
		panic(err)
	}
	key, err := signing.ParsePrivateKey(file)
	if err != nil {
		panic(err)
	}
	keys := signing.NewKeyring(signing.KeyFileRing(key))

	account := tokens.Account{Namespace: "shop", Name: "robot", UID: "5f0d6ab2-7c4e-4f5c-9d0e-4a1f3b2c1d00"}
	token, err := tokens.NewIssuer(keys, tokens.CompatClaims).Legacy(context.Background(), account, "robot-token")
	if err != nil {
		panic(err)
	}

	verified, err := tokens.VerifyLegacy(token, keys)
	if err != nil {
		panic(err)
	}
	fmt.Println(verified.Subject, verified.Algorithm)
	fmt.Printf("%q\n", verified.Mismatch(account, "robot-token"))
	fmt.Printf("%q\n", verified.Mismatch(account, "another-token"))
	// Output:
	// system:serviceaccount:shop:robot RS256
	// ""
	// "the token's claim kubernetes.io/serviceaccount/secret.name is not \"another-token\""
}

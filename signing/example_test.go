// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing_test

import (
	"fmt"
	"os"

	"sa-controller-manager/signing"
)

func readKey(name string) *signing.PrivateKey {
	file, err := os.ReadFile("testkeys/keys/" + name + ".pem")
	if err != nil {
		panic(err)
	}
	key, err := signing.ParsePrivateKey(file)
	if err != nil {
		panic(err)
	}
	return key
}

// The public halves of keys are published for relying parties, and read back from there.
func ExampleMarshalJWKS() {
	keys := signing.NewKeySet(readKey("p256").Public(), readKey("rsa-2048").Public())
	document, err := signing.MarshalJWKS(keys.All())
	if err != nil {
		panic(err)
	}
	published, err := signing.ParseJWKS(document)
	if err != nil {
		panic(err)
	}
	for _, key := range published {
		_, known := keys.Lookup(key.ID)
		fmt.Println(key.Algorithm, known)
	}
	// Output:
	// ES256 true
	// RS256 true
}

// The next key is published and does not sign until it is activated, once kube-apiserver accepts it.
// The previous key still verifies.
func ExampleKeyring_Activate() {
	active, next := readKey("rsa-2048"), readKey("p256")
	keyring := signing.NewKeyring(signing.KeyFileRing(active))
	keyring.Set(signing.KeyFileRing(next)) // the file has changed
	show := func() {
		for _, key := range keyring.Ring().All() {
			fmt.Println(key.Role, key.Algorithm)
		}
	}
	show()
	fmt.Println("activated:", keyring.Activate(next.ID()))
	show()
	// Output:
	// active RS256
	// next ES256
	// activated: true
	// active ES256
	// retired RS256
}

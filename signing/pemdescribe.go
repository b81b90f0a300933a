// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

package signing

import (
	"bytes"
	"encoding/pem"
	"slices"
	"strings"
)

// byteOrderMarks are those of UTF-8 and UTF-16.
var byteOrderMarks = []string{"\xef\xbb\xbf", "\xff\xfe", "\xfe\xff"}

// hidesKey reports whether a byte order mark hides the first block of the file. The next one would be used in its place.
func hidesKey(data []byte) bool {
	return bytes.HasPrefix(data, []byte(byteOrderMarks[0]+"-----BEGIN "))
}

// describeFile says what was found in a file without a usable key. block is its most telling PEM
// block, or nil.
func describeFile(data []byte, block *pem.Block) string {
	switch {
	case slices.ContainsFunc(byteOrderMarks, func(mark string) bool { return bytes.HasPrefix(data, []byte(mark)) }):
		return "a byte order mark at the beginning of the file, which hides what follows: save the file as plain ASCII"
	case bytes.HasPrefix(data, []byte("ssh-")), bytes.HasPrefix(data, []byte("ecdsa-sha2-")),
		bytes.Contains(data, []byte("---- BEGIN SSH2")):
		return "a public key in OpenSSH form, which ssh-keygen -e -m PKCS8 -f FILE converts"
	case block != nil:
		return describeBlock(block)
	case len(bytes.TrimSpace(data)) == 0:
		return "nothing, the file is empty"
	case bytes.Contains(data, []byte("-----BEGIN ")):
		return "a damaged or cut off PEM block"
	}
	return "no PEM block"
}

// describeBlock names the kind of a PEM block. An unknown label is not quoted, because it is content
// of the file.
func describeBlock(block *pem.Block) string {
	switch {
	case encrypted(block):
		return "an encrypted private key"
	case block.Type == labelPKCS1:
		return "a private key that is not valid PKCS#1"
	case block.Type == labelSEC1:
		return "a private key that is not valid SEC 1 on a known named curve"
	case block.Type == labelPKCS8:
		return "a private key that is not valid PKCS#8 with an RSA or EC key"
	case block.Type == "OPENSSH PRIVATE KEY":
		return "a private key in OpenSSH form"
	case block.Type == "EC PARAMETERS":
		return "EC parameters without a key"
	case block.Type == "CERTIFICATE REQUEST":
		return "a certificate request"
	case strings.HasSuffix(block.Type, labelCertificate):
		return "a certificate"
	case strings.HasSuffix(block.Type, labelPublic):
		return "a public key"
	}
	return "a PEM block that is not a key"
}

// encrypted recognizes both ways of encryption: the headers of RFC 1421 and the PKCS#8 label.
func encrypted(block *pem.Block) bool {
	return block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED")
}

// Suffixes of labels. Blocks of one kind have different prefixes: "RSA PUBLIC KEY", "TRUSTED
// CERTIFICATE".
const (
	labelPublic      = "PUBLIC KEY"
	labelCertificate = "CERTIFICATE"
)

func meantPublic(block *pem.Block) bool {
	return strings.HasSuffix(block.Type, labelPublic) || strings.HasSuffix(block.Type, labelCertificate)
}

func meantPrivate(block *pem.Block) bool {
	return strings.HasSuffix(block.Type, "PRIVATE KEY")
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inspect says what a ServiceAccount token is, who signed it, and whether it is valid or
// why not.
//
// Evaluate is pure: it takes the token, the keys and issuers that are known, and what kube-apiserver
// said if it was asked. Ask has it say that. A Report prints itself for people and for programs.
//
// A token that is offline valid has a good signature, has begun and not ended, and is of the right
// issuer. Whether its account, Secret or Pod still lives is for kube-apiserver alone to say; its
// word counts more than ours.
//
// What must never happen: the signature, or a whole token, in what is printed, unless the person
// asks for it. Without it a token opens nothing. Claims are printed: they are what the person wants
// to see. They may be anybody's, so no character of them may reach a terminal that is not to be
// seen.
package inspect

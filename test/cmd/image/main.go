// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image writes the container image of sa-controller-manager to a file, without a
// container engine, and prints the digest of what it has written.
//
// A build by an engine needs the engine, and makes a different image each time unless it is
// told many things. Here equal sources and an equal Go give the same digest: all times are that
// of the commit, owners are 0, and the layer is not compressed.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"

	"sa-controller-manager/test/ociimage"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	binary := flags.String("binary", "", "static `file` that the image runs")
	out := flags.String("out", "", "`file` to write")
	tag := flags.String("tag", "v0.0.0", "version of the image")
	revision := flags.String("revision", "", "commit that it is made from")
	date := flags.String("date", "1970-01-01T00:00:00Z", "time of that commit")
	if err := flags.Parse(args); err != nil {
		return err
	}
	content, err := os.ReadFile(*binary)
	if err != nil {
		return err
	}
	made, err := time.Parse(time.RFC3339, *date)
	if err != nil {
		return fmt.Errorf("-date: %w", err)
	}
	image := ociimage.Image{
		Binary: content,
		Path:   "/usr/local/bin/sa-controller-manager",
		Name:   "sa-controller-manager:" + *tag,
		Date:   made,
		Labels: map[string]string{
			"org.opencontainers.image.title":    "sa-controller-manager",
			"org.opencontainers.image.version":  *tag,
			"org.opencontainers.image.revision": *revision,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	digest, err := write(image, *out)
	if err != nil {
		return err
	}
	fmt.Printf("%s %s in %s\n", image.Name, digest, *out)
	return nil
}

// write leaves no half of a file behind.
func write(image ociimage.Image, name string) (digest string, err error) {
	file, err := os.Create(name + ".new")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.Remove(file.Name()) }() // gone if all went well
	if digest, err = image.Write(file); err != nil {
		_ = file.Close()
		return "", err
	}
	if err := file.Close(); err != nil {
		return "", err
	}
	return digest, os.Rename(file.Name(), name)
}

# Copyright The sa-controller-manager Authors.
# SPDX-License-Identifier: Apache-2.0

# The image of "make image", for those who build with a container engine:
#
#   make build
#   docker build --tag sa-controller-manager:$(git describe --tags --always) .
#
# The binary is static and needs nothing around it, no CA certificates either: it knows
# whom to trust from its kubeconfig or its Pod. With BuildKit's
# SOURCE_DATE_EPOCH=0 and --output=type=oci,dest=image.tar,rewrite-timestamp=true equal
# binaries give equal images.
FROM scratch
COPY bin/sa-controller-manager /usr/local/bin/sa-controller-manager
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/sa-controller-manager"]

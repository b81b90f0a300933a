// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// A PKCS#11 module that is SoftHSM, except that one function does not return while the file WAIT is there: FUNCTION is
// its place in CK_FUNCTION_LIST. Such a call adds a byte to the file. It never returns if LOST.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

enum { CKR_GENERAL_ERROR = 5 };

struct functions {
	unsigned char version[2];
	void *f[68];
};

static struct functions ours, *theirs;

static unsigned long waits(unsigned long a, unsigned long b, void *c, unsigned long d, void *e, void *f) {
	int file = open(WAIT, O_WRONLY | O_APPEND);
	if (file >= 0 && write(file, "x", 1) != 1)
		return CKR_GENERAL_ERROR;
	while (file >= 0 && (LOST || access(WAIT, F_OK) == 0))
		usleep(20000);
	if (file >= 0)
		close(file);
	return ((unsigned long (*)(unsigned long, unsigned long, void *, unsigned long, void *, void *))theirs->f[FUNCTION])(a, b, c, d, e, f);
}

unsigned long C_GetFunctionList(struct functions **list) {
	void *library = dlopen(SOFTHSM, RTLD_NOW);
	unsigned long (*get)(struct functions **) = library ? dlsym(library, "C_GetFunctionList") : 0;
	if (!get || get(&theirs))
		return CKR_GENERAL_ERROR;
	ours = *theirs;
	ours.f[FUNCTION] = waits;
	*list = &ours;
	return 0;
}

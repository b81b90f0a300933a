// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// A PKCS#11 module that is SoftHSM, except that one function always fails, as SoftHSM itself never
// lets it: FUNCTION is its place in CK_FUNCTION_LIST, CODE what it returns.
#include <dlfcn.h>

enum { CKR_GENERAL_ERROR = 5 };

struct functions {
	unsigned char version[2];
	void *f[68];
};

static struct functions ours;

static unsigned long refuse(void) { return CODE; }

unsigned long C_GetFunctionList(struct functions **list) {
	void *library = dlopen(SOFTHSM, RTLD_NOW);
	unsigned long (*get)(struct functions **) = library ? dlsym(library, "C_GetFunctionList") : 0;
	struct functions *theirs;
	if (!get || get(&theirs))
		return CKR_GENERAL_ERROR;
	ours = *theirs;
	ours.f[FUNCTION] = refuse;
	*list = &ours;
	return 0;
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// A PKCS#11 module that is SoftHSM, and adds a byte to the file ATTEMPTS for each PIN that C_Login refuses: the
// number after which other tokens lock. AFTER is what it does before that answer.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { CKR_GENERAL_ERROR = 5, CKR_PIN_INCORRECT = 0xA0, LOGIN = 18 };

struct functions {
	unsigned char version[2];
	void *f[68];
};

static struct functions ours, *theirs;

static unsigned long login(unsigned long session, unsigned long user, unsigned char *pin, unsigned long length) {
	unsigned long result =
		((unsigned long (*)(unsigned long, unsigned long, unsigned char *, unsigned long))theirs->f[LOGIN])(session, user, pin, length);
	if (result == CKR_PIN_INCORRECT) {
		int file = open(ATTEMPTS, O_WRONLY | O_APPEND);
		if (write(file, "x", 1) != 1)
			return CKR_GENERAL_ERROR;
		close(file);
		AFTER;
	}
	return result;
}

unsigned long C_GetFunctionList(struct functions **list) {
	void *library = dlopen(SOFTHSM, RTLD_NOW);
	unsigned long (*get)(struct functions **) = library ? dlsym(library, "C_GetFunctionList") : 0;
	if (!get || get(&theirs))
		return CKR_GENERAL_ERROR;
	ours = *theirs;
	ours.f[LOGIN] = login;
	*list = &ours;
	return 0;
}

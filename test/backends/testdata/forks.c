// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// A PKCS#11 module that is SoftHSM, and starts a process that keeps what it has inherited. It ends when the file TEST is
// gone.
#include <dlfcn.h>
#include <unistd.h>

enum { CKR_GENERAL_ERROR = 5 };

unsigned long C_GetFunctionList(void **list) {
	if (fork() == 0) {
		for (int file = 0; file < 3; file++)
			close(file);
		setsid();
		while (access(TEST, F_OK) == 0)
			usleep(100000);
		_exit(0);
	}
	void *library = dlopen(SOFTHSM, RTLD_NOW);
	unsigned long (*get)(void **) = library ? dlsym(library, "C_GetFunctionList") : 0;
	return get ? get(list) : CKR_GENERAL_ERROR;
}

// Copyright The sa-controller-manager Authors.
// SPDX-License-Identifier: Apache-2.0

// Package must is for programs that are a list of steps, each of which ends all at its first error, as testutil is for tests. The
// functions may be called where Catch is on the stack of the same goroutine, and nowhere else.
package must

import "fmt"

// failure is what Do panics with, for Catch.
type failure struct{ error }

// Do ends what Catch has called, unless there is no error.
func Do(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Get is Do of what a call returns.
func Get[T any](value T, err error) T {
	Do(err)
	return value
}

// Not ends what Catch has called if something is so.
func Not(is bool, format string, args ...any) {
	if is {
		Do(fmt.Errorf(format, args...))
	}
}

// Catch returns the error that a call has ended with.
func Catch(call func()) (err error) {
	defer func() {
		switch ended := recover().(type) {
		case nil:
		case failure:
			err = ended.error
		default:
			panic(ended)
		}
	}()
	call()
	return nil
}

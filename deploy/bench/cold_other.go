//go:build !linux

package main

import (
	"errors"
	"os"
)

var errNoDirect = errors.New("consume-cold needs Linux")

func openDirect(string) (*os.File, error) { return nil, errNoDirect }

func alignedBuffer(n int) []byte { return make([]byte, n) }

func evict(string) error { return errNoDirect }

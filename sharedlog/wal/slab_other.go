//go:build !unix

package wal

func allocSlab(size int) ([]byte, error) { return make([]byte, size), nil }

func freeSlab([]byte) {}

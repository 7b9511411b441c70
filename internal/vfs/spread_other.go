//go:build !linux

package vfs

// Spread implements Spreader.
func (OS) Spread(string) {}

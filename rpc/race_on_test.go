//go:build race

package rpc

// RaceDetector says that allocations are not those of a real build.
const RaceDetector = true

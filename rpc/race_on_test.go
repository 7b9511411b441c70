//go:build race

package rpc

// raceDetector says that allocations are not those of a real build.
const raceDetector = true

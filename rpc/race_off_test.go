//go:build !race

package rpc

const RaceDetector = false

//go:build !plant

package plant

// On is false.
func On(Bug) bool { return false }

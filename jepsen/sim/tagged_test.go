//go:build synctests

package sim_test

// tagged: the client's locks are channels, so that virtual time passes them.
const tagged = true

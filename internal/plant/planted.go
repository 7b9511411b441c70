//go:build plant

package plant

import "os"

var chosen = Bug(os.Getenv("PONOR_PLANT"))

// On says whether a bug is planted.
func On(b Bug) bool { return b == chosen }

package objstore

import (
	"fmt"
	"strings"
)

// CheckKey says what is wrong with a key, nil if nothing is. Keys are
// slash-separated names of 1 to 200 bytes, 1000 in all; a name does not start
// with a dot (directory stores keep such names for themselves) and has no NUL
// or backslash, so that a key can always be a path below a root.
func CheckKey(key string) error {
	if len(key) > 1000 {
		return fmt.Errorf("%w: key of %d bytes, at most 1000", ErrRefused, len(key))
	}
	for name := range strings.SplitSeq(key, "/") {
		if name == "" || len(name) > 200 || name[0] == '.' || strings.ContainsAny(name, "\x00\\") {
			return fmt.Errorf("%w: bad key %q", ErrRefused, key)
		}
	}
	return nil
}

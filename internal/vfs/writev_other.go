//go:build !linux

package vfs

// Writev implements File.
func (f osFile) Writev(parts [][]byte) error {
	for _, p := range parts {
		if _, err := f.Write(p); err != nil {
			return err
		}
	}
	return nil
}

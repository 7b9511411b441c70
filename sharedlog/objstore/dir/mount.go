package dir

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Warnings says what is wrong with how the directory is mounted, for the log at
// start. Only Linux tells; elsewhere there are none.
func (b *Bucket) Warnings() []string {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	root, err := filepath.EvalSymlinks(b.root)
	if err != nil {
		return nil
	}
	if root, err = filepath.Abs(root); err != nil {
		return nil
	}
	return MountWarnings(string(info), root)
}

// MountWarnings looks at the text of /proc/self/mountinfo for the mount that has
// the directory root (absolute, no symbolic links).
func MountWarnings(mountinfo, root string) []string {
	var point, kind, options string
	for line := range strings.Lines(mountinfo) {
		// 36 35 98:0 /dir /point rw,noatime shared:1 - ext4 /dev/root rw,errors=continue
		mount, super, ok := strings.Cut(line, " - ")
		f, s := strings.Fields(mount), strings.Fields(super)
		if !ok || len(f) < 6 || len(s) < 3 {
			continue
		}
		p := strings.ReplaceAll(f[4], `\040`, " ")
		inside := root == p || p == "/" || strings.HasPrefix(root, p+"/")
		if inside && len(p) >= len(point) { // the last of several on one point is on top
			point, kind, options = p, s[0], f[5]+","+s[2]
		}
	}
	has := func(option string) bool { return strings.Contains(","+options+",", ","+option+",") }
	var out []string
	switch {
	case strings.HasPrefix(kind, "nfs"):
		if !has("hard") {
			out = append(out, fmt.Sprintf("%s is mounted soft: a write that times out may be lost after it was acknowledged; mount it with hard", point))
		}
		if !has("lookupcache=pos") && !has("lookupcache=positive") && !has("lookupcache=none") {
			out = append(out, fmt.Sprintf("%s caches negative lookups: new objects of other brokers are seen late; mount it with lookupcache=positive", point))
		}
	case kind == "tmpfs", kind == "ramfs", kind == "overlay":
		out = append(out, fmt.Sprintf("%s is %s: what is acknowledged may not survive the machine or the container", point, kind))
	}
	return out
}

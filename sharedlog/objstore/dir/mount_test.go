package dir_test

import (
	"strings"
	"testing"

	"ponor/sharedlog/objstore/dir"
)

func TestMountWarnings(t *testing.T) {
	const info = `22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 0:40 / /mnt/good rw,relatime shared:5 - nfs4 server:/x rw,vers=4.2,hard,lookupcache=pos,proto=tcp
31 22 0:41 / /mnt/soft rw,relatime - nfs4 server:/x rw,vers=4.2,soft,lookupcache=none
32 22 0:42 / /mnt/late rw,relatime - nfs server:/x rw,hard,proto=tcp
33 22 0:43 / /mnt/with\040space rw - tmpfs tmpfs rw,size=1g
34 30 254:1 / /mnt/good/disk rw - xfs /dev/vdb rw
`
	for root, want := range map[string]string{
		"/":                   "",
		"/data":               "",
		"/mnt/goodness":       "",
		"/mnt/good":           "",
		"/mnt/good/a/b":       "",
		"/mnt/good/disk/x":    "",
		"/mnt/soft/x":         "soft",
		"/mnt/late":           "lookupcache",
		"/mnt/with space/dir": "tmpfs",
	} {
		got := strings.Join(dir.MountWarnings(info, root), "\n")
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", root, got, want)
		}
	}
}

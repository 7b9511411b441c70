package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release is set by the linker for releases.
var release = "dev"

// version is the release and, where the build knows it, the commit.
func version() string {
	v := release
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				v += "+" + s.Value[:12]
			}
		}
	}
	return v
}

func newVersion() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := map[string]string{"version": version(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH}
			return render(cmd, format, v, func(p *printer) {
				p.line("ponor %s (%s, %s)", v["version"], v["go"], v["platform"])
			})
		},
	}
	formatFlag(cmd, &format)
	return cmd
}

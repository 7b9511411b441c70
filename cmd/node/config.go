package main

import (
	"cmp"
	"os"

	"github.com/spf13/cobra"
)

// settingFlags registers a flag per setting and returns how to load them all.
func settingFlags(cmd *cobra.Command) func() (settings, map[string]origin, error) {
	file := cmd.Flags().String("config", "", "YAML file of settings, one 'key: value' a line [env: PONOR_CONFIG]")
	for _, row := range settingsTable() {
		cmd.Flags().String(row.key, row.def, row.doc+" [env: "+row.env()+"]")
		if row.def == "false" {
			cmd.Flags().Lookup(row.key).NoOptDefVal = "true"
		}
	}
	return func() (settings, map[string]origin, error) {
		given := make(map[string]string)
		for _, row := range settingsTable() {
			if f := cmd.Flags().Lookup(row.key); f.Changed {
				given[row.key] = f.Value.String()
			}
		}
		return loadSettings(configFile(*file), given)
	}
}

func newConfig() *cobra.Command {
	return family("config", "Look at a node's settings", newConfigPrint())
}

func newConfigPrint() *cobra.Command {
	var format string
	cmd := &cobra.Command{Use: "print", Short: "Print every setting, its value and where the value came from", Args: takes(0, 0)}
	load := settingFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		_, origins, wrong := load()
		if origins == nil || wrong != nil && format == formatJSON {
			return wrong
		}
		err := render(cmd, format, origins, func(p *printer) {
			p.row("SETTING", "VALUE", "FROM")
			for _, row := range settingsTable() {
				p.row(row.key, origins[row.key].Value, origins[row.key].Source)
			}
		})
		return cmp.Or(wrong, err)
	}
	formatFlag(cmd, &format)
	return cmd
}

// configFile is the file named by flag or environment, or none.
func configFile(flag string) string {
	if flag != "" {
		return flag
	}
	return os.Getenv("PONOR_CONFIG")
}

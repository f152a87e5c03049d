package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Writes a man page of each command into a folder",
		Long: `Writes a man page of each command into a folder, which is made where it is missing. The date of the pages is today's, or that of
SOURCE_DATE_EPOCH.`,
		Example: `  etl man /usr/local/share/man/man1
  etl man out && man out/etl-run.1`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return failed(err)
			}
			root := c.Root()
			root.DisableAutoGenTag = true
			root.InitDefaultHelpCmd()
			header := &doc.GenManHeader{Section: "1", Source: "Sluice " + a.version, Manual: "Sluice"}
			err := doc.GenManTreeFromOpts(root, doc.GenManTreeOptions{Header: header, Path: args[0], CommandSeparator: "-"})
			if err != nil {
				return failed(fmt.Errorf("write man pages: %w", err))
			}
			return nil
		},
	}
}

// Command etl runs streaming pipelines that are written in YAML.
package main

import (
	"os"

	_ "github.com/sluice-etl/sluice/connectors/all"
	_ "github.com/sluice-etl/sluice/storage/all"

	"github.com/sluice-etl/sluice/cmd/etl/internal/cli"
)

// version is set when the program is built for a release.
var version = "dev"

func main() { os.Exit(cli.Main(version, os.Args[1:])) }

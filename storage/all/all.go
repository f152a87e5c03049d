// Package all makes every storage scheme of this program known.
package all

import (
	_ "github.com/sluice-etl/sluice/storage/hdfs"  // hdfs://
	_ "github.com/sluice-etl/sluice/storage/local" // file://
	_ "github.com/sluice-etl/sluice/storage/mem"   // mem://
	_ "github.com/sluice-etl/sluice/storage/s3"    // s3://
)

// Package all makes every connector known to a program that imports it.
package all

import (
	_ "github.com/sluice-etl/sluice/connectors/blackhole"         // registers the connector
	_ "github.com/sluice-etl/sluice/connectors/clickhouse"        // registers the connector
	_ "github.com/sluice-etl/sluice/connectors/elasticsearch"     // registers the connector
	_ "github.com/sluice-etl/sluice/connectors/files"             // registers the connector
	_ "github.com/sluice-etl/sluice/connectors/format/avro"       // registers the format
	_ "github.com/sluice-etl/sluice/connectors/format/csv"        // registers the format
	_ "github.com/sluice-etl/sluice/connectors/format/jsonschema" // registers the format
	_ "github.com/sluice-etl/sluice/connectors/format/pattern"    // registers the format
	_ "github.com/sluice-etl/sluice/connectors/format/protobuf"   // registers the format
	_ "github.com/sluice-etl/sluice/connectors/format/text"       // registers the format
	_ "github.com/sluice-etl/sluice/connectors/generate"          // registers the connector
	_ "github.com/sluice-etl/sluice/connectors/http"              // registers the connector
	_ "github.com/sluice-etl/sluice/connectors/iceberg"           // registers the connector
	_ "github.com/sluice-etl/sluice/connectors/kafka"             // registers the connector
	_ "github.com/sluice-etl/sluice/connectors/mongodb"           // registers the connector
	_ "github.com/sluice-etl/sluice/connectors/mysql"             // registers the connector
	_ "github.com/sluice-etl/sluice/connectors/postgres"          // registers the connector
	_ "github.com/sluice-etl/sluice/connectors/redis"             // registers the connector
	_ "github.com/sluice-etl/sluice/connectors/stdout"            // registers the connector
)

"""Reads and changes a table by pyiceberg, as another program that shares the catalog:
    table.py CATALOG read FILTER...     all that a reader sees, as JSON, and how many files each filter leaves
    table.py CATALOG append ROWS        rows as JSON
    table.py CATALOG expire             every snapshot but the newest one
    table.py CATALOG rollback           to the snapshot before the newest one
CATALOG is JSON: the catalog's properties, and the table."""
import json
import os
import sys

# The test's S3 server does not take the checksums that pyarrow adds to uploads by itself.
os.environ["AWS_REQUEST_CHECKSUM_CALCULATION"] = "when_required"

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.conversions import from_bytes


def load(properties):
    if "S3_ENDPOINT" in os.environ:
        properties |= {
            "s3.endpoint": os.environ["S3_ENDPOINT"], "s3.region": os.environ["S3_REGION"],
            "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"], "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
        }
    name = properties.pop("name")
    table = properties.pop("table")
    return load_catalog(name, **properties).load_table(table)


def bounds(schema, values):
    """Bounds of a file by column name."""
    return {schema.find_column_name(k): str(from_bytes(schema.find_type(k), v)) for k, v in (values or {}).items()}


def read(table, *filters):
    schema = table.schema()
    scan = table.scan()
    files = [task.file for task in scan.plan_files()]
    return {
        "schema": [f"{f.field_id} {f.name}: {f.field_type}{' required' if f.required else ''}" for f in schema.fields],
        "spec": [str(f.transform) + " of " + str(f.source_id) for f in table.spec().fields],
        "rows": scan.to_arrow().to_pylist(),
        "summaries": [{"operation": s.summary.operation.value, **s.summary.additional_properties} for s in table.snapshots()],
        "properties": table.properties,
        "files": [
            {
                "partition": [str(v) for v in (f.partition[i] for i in range(len(f.partition)))],
                "rows": f.record_count,
                "lower": bounds(schema, f.lower_bounds),
                "upper": bounds(schema, f.upper_bounds),
            }
            for f in files
        ],
        "left": {f: len(list(table.scan(f).plan_files())) for f in filters},
    }


def main(catalog, what, *args):
    table = load(json.loads(catalog))
    if what == "read":
        print(json.dumps(read(table, *args), default=str))
    elif what == "append":
        table.append(pa.Table.from_pylist(json.loads(args[0]), schema=table.schema().as_arrow()))
    elif what == "expire":
        newest = table.current_snapshot().snapshot_id
        table.maintenance.expire_snapshots().by_ids([s.snapshot_id for s in table.snapshots() if s.snapshot_id != newest]).commit()
    elif what == "rollback":
        table.manage_snapshots().rollback_to_snapshot(table.current_snapshot().parent_snapshot_id).commit()


main(*sys.argv[1:])

"""Prints the rows of the current snapshot of an Iceberg table as ReadTable.java does.

python read.py METADATA_FILE
"""

import base64
import datetime
import json
import math
import struct
import sys

import pyarrow as pa
from pyiceberg.table import StaticTable

EPOCH = datetime.datetime(1970, 1, 1)


def show(t, v):
    if v is None:
        return None
    if pa.types.is_floating(t):
        form = ">f" if t == pa.float32() else ">d"
        return "NaN" if math.isnan(v) else struct.pack(form, v).hex()
    if pa.types.is_decimal(t):
        return format(v, "f")
    if pa.types.is_time(t):
        return ((v.hour * 60 + v.minute) * 60 + v.second) * 1_000_000 + v.microsecond
    if pa.types.is_timestamp(t):
        return (v.replace(tzinfo=None) - EPOCH) // datetime.timedelta(microseconds=1)
    if pa.types.is_map(t):
        return [[show(t.key_type, k), show(t.item_type, x)] for k, x in v]
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        return [show(t.value_type, x) for x in v]
    if pa.types.is_struct(t):
        return {f.name: show(f.type, v[f.name]) for f in t}
    if isinstance(v, bytes):
        return base64.b64encode(v).decode()
    if isinstance(v, (bool, int)):
        return v
    return str(v)  # text, a date, a UUID


rows = StaticTable.from_metadata(sys.argv[1]).scan().to_arrow()
for row in rows.to_pylist():
    print(json.dumps({f.name: show(f.type, row[f.name]) for f in rows.schema}))

"""Reads a file that a test has written, and compares it with the golden rows."""
import csv
import datetime as dt
import decimal
import gzip
import json
import math
import sys
import uuid

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

kind, path = sys.argv[1], sys.argv[2]
D = decimal.Decimal
UTC = dt.timezone.utc

FULL = dict(
    id=2**63 - 1, i8=-128, u16=65535, u32=2**32 - 1, f32=1.5, f64=-2.5e-10, ok=True, d9=D("-1234567.89"),
    d18=D("12345678901234.5678"), d38=D("-1234567890123456789012345678.0123456789"),
    text='a "quoted", text\nof two lines', raw=b"\x00\xff\xfe\x80",
    at=dt.datetime(2026, 1, 31, 23, 59, 59, 123456, UTC), local_at=dt.datetime(2026, 1, 31, 23, 59, 59, 500000),
    day=dt.date(1969, 12, 31), clock=dt.time(23, 59, 59, 999999), took="1h30m0s",
    u=uuid.UUID("00112233-4455-6677-8899-aabbccddeeff"), doc={"a": [1, None, "x"]}, tags=["a", None, ""], grid=[[], [1, 2], [3]],
    item=dict(sku="s", prices=[D("0.001"), D("-99999999999999999.999")]), attrs={"x": 1, "y": None},
)
LEAST = dict(
    id=-(2**63), i8=None, u16=0, u32=0, f32=math.nan, f64=-math.inf, ok=False, d9=D("0.00"), d18=None,
    d38=D("99999999999999999999999999.9999999999"), text="", raw=b"",
    at=dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), local_at=None, day=None, clock=None, took=None, u=None, doc=None,
    tags=[], grid=[], item=dict(sku="", prices=[]), attrs={},
)
ABSENT = {k: None for k in FULL} | dict(id=0, tags=["x"], grid=[[1]], item=dict(sku="x", prices=[]), attrs={"k": 5})


def same(a, b):
    if isinstance(b, float) and math.isnan(b):
        return isinstance(a, float) and math.isnan(a)
    return type(a) is type(b) and a == b


def rows():
    if kind == "parquet":
        table = pq.read_table(path)
        types = {f.name: f.type for f in table.schema}
        assert types["at"] == pa.timestamp("us", "UTC") and types["local_at"] == pa.timestamp("us"), types
        assert types["d38"] == pa.decimal128(38, 10) and types["u16"] == pa.uint16() and types["i8"] == pa.int8(), types
        assert list(types) == list(FULL), list(types)
        chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
        assert chunk.statistics.min == -(2**63) and chunk.statistics.max == 2**63 - 1, chunk
        for r in table.to_pylist():
            r["attrs"] = dict(r["attrs"])
            r["u"] = uuid.UUID(bytes=r["u"]) if isinstance(r["u"], bytes) else r["u"]
            r["doc"] = r["doc"] if r["doc"] is None else json.loads(r["doc"])
            yield r
    elif kind == "avro":
        with open(path, "rb") as f:
            for r in fastavro.reader(f):
                r["doc"] = r["doc"] if r["doc"] is None else json.loads(r["doc"])
                if isinstance(r["u"], bytes):
                    r["u"] = uuid.UUID(bytes=r["u"])
                yield r


if kind == "csv":
    with gzip.open(path, "rt", newline="") as f:
        got = list(csv.DictReader(f))
    assert [r["id"] for r in got] == [str(2**63 - 1), str(-(2**63)), "0"], got
    assert got[0]["text"] == FULL["text"] and got[0]["d38"] == str(FULL["d38"]) and json.loads(got[0]["doc"]) == FULL["doc"], got[0]
else:
    got = list(rows())
    assert len(got) == 3, got
    for have, want in zip(got, (FULL, LEAST, ABSENT)):
        for name in want:
            assert same(have[name], want[name]), (name, have[name], want[name])
print("the same")

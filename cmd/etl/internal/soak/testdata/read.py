"""Reads what a sink has written, with clients that are not the program's, and prints
each row on a line of its own: where it stands, and a JSON object. With `sql` it runs a
statement on a database instead."""
import json
import os
import re
import sys
import time
import urllib.parse
import urllib.request

ORDER = re.compile(r"-g(\d+)-(\d+)-(\d+)-(\d+)-[0-9a-f]{6}\.[a-z]+$")


def s3_files(path):
    """Name and bytes of the objects below s3://bucket/prefix."""
    from pyarrow import fs

    s3 = fs.S3FileSystem(
        endpoint_override=os.environ["S3_ENDPOINT"].split("://")[1], scheme=os.environ["S3_ENDPOINT"].split("://")[0],
        access_key=os.environ["AWS_ACCESS_KEY_ID"], secret_key=os.environ["AWS_SECRET_ACCESS_KEY"], region=os.environ["S3_REGION"],
    )
    root = path.removeprefix("s3://")
    for f in s3.get_file_info(fs.FileSelector(root, allow_not_found=True)):
        if f.type == fs.FileType.File:
            yield f.base_name, lambda f=f: s3.open_input_stream(f.path).readall()


def hdfs_files(path):
    """Name and bytes of the files below hdfs://namenode:port/folder, by WebHDFS."""
    folder = urllib.parse.urlparse(path).path

    def get(name, op):
        url = os.environ["WEBHDFS_URL"] + urllib.parse.quote(folder + name) + f"?op={op}&user.name=" + os.environ["HADOOP_USER_NAME"]
        with urllib.request.urlopen(url, timeout=60) as r:
            return r.read()

    try:
        listing = json.loads(get("", "LISTSTATUS"))
    except urllib.error.HTTPError as e:
        if e.code == 404:
            return
        raise
    for f in listing["FileStatuses"]["FileStatus"]:
        if f["type"] == "FILE":
            yield f["pathSuffix"], lambda f=f: get("/" + f["pathSuffix"], "OPEN")


def file_rows(path):
    """The rows of all visible files, in the order of their names."""
    files = s3_files(path) if path.startswith("s3://") else hdfs_files(path)
    files = [(ORDER.search(name), name, read) for name, read in files if name[0] not in "._"]
    for order, name, _ in files:
        assert order, f"unexpected file {name}"
    for _, name, read in sorted(files, key=lambda f: [int(n) for n in f[0].groups()]):
        if name.endswith(".parquet"):
            import pyarrow as pa
            import pyarrow.parquet as pq

            rows = map(json.dumps, pq.read_table(pa.BufferReader(read())).to_pylist())
        else:
            text = read().decode()
            assert text.endswith("\n"), f"{name} ends within a line"
            rows = text.splitlines()
        for i, row in enumerate(rows):
            yield f"{name} line {i + 1}: {row}"


def iceberg_rows(catalog, warehouse):
    """The rows of an Iceberg table that a catalog in Postgres lists."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NoSuchTableError

    url = urllib.parse.urlparse(os.environ["POSTGRES_URL"])
    try:
        table = load_catalog(
            catalog, type="sql", uri=url._replace(scheme="postgresql+psycopg2", query="").geturl(), warehouse=warehouse,
            **{"s3.endpoint": os.environ["S3_ENDPOINT"], "s3.region": os.environ["S3_REGION"]},
            **{"s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"], "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"]},
        ).load_table("soak.rows")
    except NoSuchTableError:
        return
    for row in table.scan().to_arrow().sort_by([("p", "ascending"), ("n", "ascending")]).to_pylist():
        yield f"table: {json.dumps(row)}"


def connect(kind):
    if kind == "postgres":
        import psycopg

        return psycopg.connect(os.environ["POSTGRES_URL"], autocommit=True)
    import pymysql

    return pymysql.connect(
        host=os.environ["MYSQL_HOST"], port=int(os.environ["MYSQL_PORT"]), user=os.environ["MYSQL_USER"],
        password=os.environ["MYSQL_PASSWORD"], database=os.environ["MYSQL_DB"], autocommit=True,
    )


def table_rows(kind, table, letters):
    """The rows of a table, and of a folder of dead letters those that the server refused, by where they were in the input."""
    with connect(kind) as db, db.cursor() as c:
        c.execute(f"SELECT p, n, seen FROM {table} ORDER BY p, n")
        rows = [("table", *r) for r in c.fetchall()]
    for name in os.listdir(letters) if os.path.isdir(letters) else []:
        if not name.startswith((".", "_")):
            with open(os.path.join(letters, name)) as f:
                rows += [("refused", r["partition"], r["offset"], r["offset"] + 1) for r in map(json.loads, f)]
    # Rows of a table have no order.
    for where, p, n, seen in sorted(rows, key=lambda r: r[1:3]):
        yield f'{where}: {json.dumps({"p": p, "n": n, "seen": seen})}'


def clickhouse(statement):
    """Runs a statement on ClickHouse, and gives the values of its rows."""
    user = {"X-ClickHouse-User": os.environ["CLICKHOUSE_USER"], "X-ClickHouse-Key": os.environ["CLICKHOUSE_PASSWORD"]}
    with urllib.request.urlopen(urllib.request.Request(os.environ["CLICKHOUSE_URL"], statement.encode(), user), timeout=60) as r:
        return [tuple(map(int, line.split("\t"))) for line in r.read().decode().splitlines()]


def clickhouse_rows(table):
    for p, n, seen in clickhouse(f"SELECT p, n, seen FROM {table} ORDER BY p, n"):
        yield f'table: {json.dumps({"p": p, "n": n, "seen": seen})}'


# What libraries raise when a server is not there, or goes away.
AWAY = {"OperationalError", "InterfaceError", "URLError", "ConnectionError", "HTTPException"}


def patiently(read):
    """Tries again while a server is away: other tests, at work beside this, kill it and start it again."""
    end = time.monotonic() + 60
    while True:
        try:
            return read()
        except Exception as e:
            if time.monotonic() > end or not any(c.__name__ in AWAY for c in type(e).__mro__):
                raise
        time.sleep(0.2)


def main(what, *args):
    if what == "sql" and args[0] == "clickhouse":
        patiently(lambda: clickhouse(args[1]))
        return
    if what == "sql":
        with patiently(lambda: connect(args[0])) as db, db.cursor() as c:
            c.execute(args[1])
        return
    rows = {"files": file_rows, "clickhouse": clickhouse_rows, "iceberg": iceberg_rows}.get(what)
    for line in patiently(lambda: list(rows(*args) if rows else table_rows(what, *args))):
        sys.stdout.write(line + "\n")


main(*sys.argv[1:])

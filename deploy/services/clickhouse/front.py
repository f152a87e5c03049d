"""ClickHouse's HTTP interface in front of its engine in this process (chdb).

The engine, its tables and what it says are ClickHouse's own. This file stands in
for the server around it: it takes a query from the URL or the body, settings as
URL parameters, data as the body of an INSERT, and answers with the status and the
headers of the real interface. Queries run one at a time.

  front.py PATH HOST PORT       (CLICKHOUSE_USER, CLICKHOUSE_PASSWORD: who may come in)
"""

import base64
import http.server
import os
import re
import signal
import sys
import tempfile
import threading
import urllib.parse

from chdb import session

# Parameters of the interface itself; every other one is a setting.
OWN = {"query", "database", "user", "password", "default_format", "query_id", "session_id", "buffer_size", "compress", "decompress", "wait_end_of_query"}
INSERT = re.compile(r"^(\s*INSERT\s+INTO\s.*?)\s+FORMAT\s+(\w+)\s*;?\s*$", re.S | re.I)
ERROR = re.compile(r"Code: (\d+)\. DB::")
# The statuses by error code that HTTPHandler.cpp gives; 500 for all others.
STATUS = {
    **dict.fromkeys([6, 26, 27, 38, 41, 53, 62, 69, 70, 72, 117, 130, 131, 349, 386, 395], 400),
    **dict.fromkeys([16, 46, 47, 60, 81], 404),
    **dict.fromkeys([192, 193, 497, 516], 403),
    194: 401,
    48: 501,
    209: 408,
}


class Engine:
    """One session of the engine, used by one thread at a time."""

    def __init__(self, path):
        self.lock = threading.Lock()
        self.session = session.Session(path)

    def run(self, query, database, settings, form):
        """The answer of a query, or the error as text and its code."""
        done = []
        with self.lock:
            try:
                if database:
                    self.session.query("USE `" + database.replace("\\", "\\\\").replace("`", "\\`") + "`")
                for name, value in settings:
                    if not name.isidentifier():
                        raise RuntimeError(f"Code: 115. DB::Exception: Unknown setting '{name}'. (UNKNOWN_SETTING)")
                    self.session.query("SET {} = '{}'".format(name, value.replace("\\", "\\\\").replace("'", "\\'")))
                    done.append(name)
                return self.session.query(query, form).bytes(), 0
            except Exception as e:
                code = ERROR.search(str(e))
                return str(e).encode(), int(code.group(1)) if code else 1002
            finally:
                for name in done:
                    self.session.query(f"SET {name} = DEFAULT")
                if database:
                    self.session.query("USE default")


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine = None

    def log_message(self, *_):
        pass

    def answer(self, status, body, code=0):
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=UTF-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-ClickHouse-Server-Display-Name", "chdb")
        if code:
            self.send_header("X-ClickHouse-Exception-Code", str(code))
        self.end_headers()
        self.wfile.write(body)

    def known(self, params):
        user, password = params.get("user", ""), params.get("password", "")
        kind, _, text = self.headers.get("Authorization", "").partition(" ")
        if kind.lower() == "basic":
            user, _, password = base64.b64decode(text).decode().partition(":")
        user = self.headers.get("X-ClickHouse-User", user) or "default"
        password = self.headers.get("X-ClickHouse-Key", password)
        return user == os.environ.get("CLICKHOUSE_USER", "default") and password == os.environ.get("CLICKHOUSE_PASSWORD", "")

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(parts)

    def do_GET(self):
        self.respond(b"")

    def do_POST(self):
        self.respond(self.body())

    def respond(self, data):
        url = urllib.parse.urlsplit(self.path)
        params = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        if url.path == "/ping" or url.path == "/" and not params and not data:
            return self.answer(200, b"Ok.\n")
        if url.path != "/":
            return self.answer(404, b"There is no handle " + url.path.encode() + b"\n")
        if not self.known(params):
            return self.answer(403, b"Code: 516. DB::Exception: Authentication failed: password is incorrect, or there is no user with such name. (AUTHENTICATION_FAILED)\n", 516)
        settings = [(k, v) for k, v in params.items() if k not in OWN and not k.startswith("param_")]
        with tempfile.NamedTemporaryFile(dir=os.environ.get("CLICKHOUSE_TMP")) as file:
            query = self.query(params.get("query", ""), data, file)
            out, code = self.engine.run(query, params.get("database") or self.headers.get("X-ClickHouse-Database"), settings, params.get("default_format", "TabSeparated"))
        self.answer(STATUS.get(code, 500) if code else 200, out, code)

    def query(self, query, data, file):
        """The query as the engine takes it: data of an INSERT come from a file."""
        insert = INSERT.match(query)
        if not insert or not data:
            return (query + "\n" + data.decode("utf-8", "surrogateescape")).strip()
        file.write(data)
        file.flush()
        packed = {"gzip": "gzip", "zstd": "zstd"}.get(self.headers.get("Content-Encoding", ""), "none")
        return f"{insert.group(1)} FROM INFILE '{file.name}' COMPRESSION '{packed}' FORMAT {insert.group(2)}"


def main():
    path, host, port = sys.argv[1:4]
    Handler.engine = Engine(path)
    server = http.server.ThreadingHTTPServer((host, int(port)), Handler)
    server.daemon_threads = True
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    server.serve_forever()
    with Handler.engine.lock:
        Handler.engine.session.close()


main()

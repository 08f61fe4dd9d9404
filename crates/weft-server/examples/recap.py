#!/usr/bin/env python3
"""A cassette in Python, without any package: what was asked in a session, from weft's own read API.

    python3 recap.py 9998 http://localhost:8081
    weft serve --cassettes http://127.0.0.1:9998/openapi
    curl http://localhost:8081/v1/cassettes/recap/sessions/SESSION

It offers the MCP tool `recap.session`.
"""

import hashlib
import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LONGEST_BODY = 1 << 20
SESSION = {
    "type": "object",
    "properties": {
        "session_id": {"type": "string", "description": "Id of a session, as a search shows it"},
        "turns": {"type": "integer", "minimum": 1, "default": 20, "description": "The newest so many"},
    },
    "required": ["session_id"],
}
RECAP = {
    "type": "object",
    "properties": {
        "session_id": {"type": "string"},
        "asked": {"type": "array", "items": {"type": "string"}},
    },
}
ANSWER = {"200": {"description": "The recap", "content": {"application/json": {"schema": RECAP}}}}
DOCUMENT = json.dumps(
    {
        "openapi": "3.1.0",
        "info": {"title": "Recap", "version": "0.1.0"},
        "x-tapes-cassette": {
            "kind": "cassette/v1alpha1",
            "cassette": {"name": "recap", "version": "0.1.0", "description": "What was asked in a session"},
            "depends": {"core": "v1"},
        },
        "paths": {
            "/api/recap/sessions/{id}": {
                "get": {
                    "operationId": "get",
                    "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
                    "responses": ANSWER,
                }
            },
            "/api/recap/session": {
                "post": {
                    "operationId": "recap",
                    "summary": "Recap a session",
                    "description": "What was asked in a session, turn by turn: read it before you resume one.",
                    "x-tapes-mcp": {"name": "session", "annotations": {"readOnlyHint": True, "openWorldHint": False}},
                    "requestBody": {"required": True, "content": {"application/json": {"schema": SESSION}}},
                    "responses": ANSWER,
                }
            },
        },
    }
).encode()
TAG = '"%s"' % hashlib.sha256(DOCUMENT).hexdigest()


class Cassette(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, value, headers=()):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, text in headers:
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    def recap(self, session, turns):
        url = "%s/v1/traces?session_id=%s" % (self.server.weft, urllib.parse.quote(session, safe=""))
        request = urllib.request.Request(url)
        # Who asks weft asks it in the caller's name.
        if "Authorization" in self.headers:
            request.add_header("Authorization", self.headers["Authorization"])
        try:
            with urllib.request.urlopen(request, timeout=10) as r:
                items = json.load(r)["items"]
        except urllib.error.HTTPError as e:
            return self.answer(e.code, {"error": "weft answered %d" % e.code})
        except OSError as e:
            return self.answer(502, {"error": str(e)})
        asked = [i.get("user_prompt", "") for i in items]
        self.answer(200, {"session_id": session, "asked": asked[-turns:]})

    def do_GET(self):
        path = urllib.parse.urlsplit(self.path).path
        if path == "/ping":
            return self.answer(200, b'"pong"')
        if path == "/openapi":
            if self.headers.get("If-None-Match") == TAG:
                self.send_response(304)
                self.end_headers()
                return None
            return self.answer(200, DOCUMENT, [("ETag", TAG)])
        session = path.removeprefix("/api/recap/sessions/")
        if session != path and session:
            return self.recap(urllib.parse.unquote(session), 1_000)
        return self.answer(404, {"error": "not found"})

    def do_POST(self):
        length = int(self.headers.get("Content-Length") or 0)
        if length > LONGEST_BODY:
            return self.answer(413, {"error": "too large"})
        body = self.rfile.read(length)
        if urllib.parse.urlsplit(self.path).path != "/api/recap/session":
            return self.answer(404, {"error": "not found"})
        try:
            given = json.loads(body)
            session, turns = given["session_id"], int(given.get("turns", 20))
        except (ValueError, KeyError, TypeError):
            return self.answer(400, {"error": "session_id is required"})
        if not isinstance(session, str) or turns < 1:
            return self.answer(400, {"error": "session_id must be text, turns at least 1"})
        return self.recap(session, turns)

    def log_message(self, *args):
        pass


def main():
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 9998
    server = ThreadingHTTPServer(("127.0.0.1", port), Cassette)
    server.weft = sys.argv[2].rstrip("/") if len(sys.argv) > 2 else "http://localhost:8081"
    print("http://127.0.0.1:%d/openapi" % server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

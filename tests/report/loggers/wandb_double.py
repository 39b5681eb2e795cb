"""Stands in for a W&B server on the loopback interface, as far as `wandb sync` needs one, and records what it
receives."""
import http.server
import json
import os
import re
import subprocess
import sys
import tempfile
import threading

ENTITY = "tester"
SYNC_SECONDS = 120


class WandbDouble:
    """Answers the calls of one `wandb sync`.

    rows, summary: from the file stream. run: the variables with which the run was created. files: contents of
    uploaded files, by name. exit_code: None until the run has ended. unknown: requests that the double cannot answer.
    Since it is also the proxy of wandb's client, these include every attempt to reach another host.
    """

    def __init__(self):
        self.lines = {}  # lines of wandb-history.jsonl, by number
        self.summary = {}
        self.run = {}
        self.files = {}
        self.exit_code = None
        self.unknown = []
        self.lock = threading.Lock()
        double = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
                with double.lock:
                    reply = double.reply_to_post(self.path, body)
                self.answer(404 if reply is None else 200, json.dumps(reply or {}).encode())

            def do_PUT(self):
                content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with double.lock:
                    double.files[self.path.removeprefix("/upload/")] = content
                self.answer(200, b"")

            def do_GET(self):
                with double.lock:
                    double.unknown.append(f"{self.command} {self.path}")
                self.answer(404, b"")

            do_CONNECT = do_HEAD = do_GET

            def answer(self, status, content):
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def rows(self):
        """The rows of the history in order. Their line numbers must have no gap."""
        assert sorted(self.lines) == list(range(len(self.lines))), sorted(self.lines)
        return [json.loads(self.lines[number]) for number in range(len(self.lines))]

    def reply_to_post(self, path, body):
        if path == "/graphql":
            return self.reply_to_query(body["query"], body.get("variables") or {})
        if path.startswith(f"/files/{ENTITY}/") and path.endswith("/file_stream"):
            self.take_stream(body)
            return {}
        self.unknown.append(f"POST {path}")
        return None

    def take_stream(self, body):
        for name, chunk in body.get("files", {}).items():
            if name == "wandb-history.jsonl":
                for i, line in enumerate(chunk["content"]):
                    self.lines[chunk["offset"] + i] = line
            elif name == "wandb-summary.json":
                self.summary = json.loads(chunk["content"][-1])
        if body.get("complete"):
            self.exit_code = body["exitcode"]

    def reply_to_query(self, query, variables):
        operation = re.search(r"(?:query|mutation)\s+(\w+)", query).group(1)
        answer = {"ProbeServerCapabilities": self.capabilities,
                  "ProbeServerSettings": lambda _: {"ServerSettingsType": {"fields": []}},
                  "ServerFeaturesQuery": lambda _: {"serverInfo": {"features": []}},
                  "Viewer": lambda _: {"viewer": {"id": "1", "entity": ENTITY, "username": ENTITY, "flags": "{}"}},
                  "UpsertBucket": self.upsert,
                  "CreateRunFiles": self.upload_urls}.get(operation)
        if answer is None:
            self.unknown.append(operation)
            return {"data": {}}
        return {"data": answer(variables)}

    def capabilities(self, _):
        return {"QueryType": {"fields": []}, "MutationType": {"fields": [{"name": "createRunFiles"}]},
                "ServerInfoType": {"fields": []}}

    def upsert(self, variables):
        self.run.update({name: value for name, value in variables.items() if value is not None})
        name = self.run["name"]
        return {"upsertBucket": {
            "inserted": True,
            "bucket": {"id": "storage", "name": name, "displayName": self.run.get("displayName"), "config": "{}",
                       "historyLineCount": 0,
                       "project": {"id": "1", "name": self.run["project"], "entity": {"id": "1", "name": ENTITY}}}}}

    def upload_urls(self, variables):
        return {"createRunFiles": {
            "runID": "storage", "uploadHeaders": [],
            "files": [{"name": name, "uploadUrl": f"{self.url}/upload/{name}"} for name in variables["files"]]}}


def sync(command, folder):
    """Uploads the run in `folder` with `command` ("sync" or "beta sync") to a double, and returns the double."""
    with WandbDouble() as double, tempfile.TemporaryDirectory() as home:
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith("WANDB_") and not name.lower().endswith("_proxy")}
        environment.update(HOME=home, WANDB_BASE_URL=double.url, WANDB_API_KEY="0" * 40, WANDB_ERROR_REPORTING="false",
                           HTTP_PROXY=double.url, HTTPS_PROXY=double.url, NO_PROXY="127.0.0.1")
        result = subprocess.run([sys.executable, "-m", "wandb", *command.split(), str(folder)], env=environment, cwd=home,
                                capture_output=True, text=True, timeout=SYNC_SECONDS)
    assert result.returncode == 0 and not double.unknown, (double.unknown, result.stdout, result.stderr)
    return double

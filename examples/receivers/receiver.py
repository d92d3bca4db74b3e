"""Receives webhooks, with only Python: PORT=8080 WEBHOOK_SECRET=whsec_… python3 receiver.py"""

import contextlib
import hashlib
import hmac
import json
import os
import re
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = os.environ.get("WEBHOOK_SECRET", "").encode()
if not SECRET:
    raise SystemExit("WEBHOOK_SECRET is not set")

# Larger than any delivery, in bytes.
BODY_MAX = 2_000_000

# Time limit for a sender's headers and body, in seconds.
READ_TIMEOUT = 10

# The ids of processed events. Keep yours in your database, under a unique key.
done = set()
one_at_a_time = threading.Lock()


class Receiver(BaseHTTPRequestHandler):
    def setup(self):
        super().setup()
        self.late = threading.Timer(READ_TIMEOUT, self.stop_reading)
        self.late.start()

    def stop_reading(self):
        with contextlib.suppress(OSError):  # The sender is gone.
            self.connection.shutdown(socket.SHUT_RD)

    def finish(self):
        self.late.cancel()
        super().finish()

    def do_POST(self):
        try:
            status = self.receive()
        except Exception as error:
            self.log_error("%r", error)
            status = 500  # The event is sent again later.
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def receive(self):
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,12}", length):
            return 411
        if int(length) > BODY_MAX:
            return 413
        body = self.rfile.read(int(length))
        self.late.cancel()
        if not is_genuine(self.headers.get("X-Service-Signature", ""), body):
            return 401
        if "X-Service-Test" in self.headers:  # Its record is invented.
            return 200
        event = json.loads(body)
        with one_at_a_time:
            if event["id"] not in done:
                work(event)
                done.add(event["id"])  # After the work: a crash repeats it instead of losing it.
        return 200


def is_genuine(header, body):
    """Whether the header signs exactly these bytes, with a timestamp within 5 minutes of now."""
    fields = [field.partition("=")[::2] for field in header.split(",")]
    at = next((value for name, value in fields if name == "t"), "")
    if not re.fullmatch("[0-9]{1,12}", at):
        return False
    age = int(time.time()) - int(at)
    if abs(age) > 300:
        print(f"rejected: the timestamp is {age} s old; is this server's clock right?", file=sys.stderr)
        return False
    digest = hmac.new(SECRET, at.encode() + b"." + body, hashlib.sha256).hexdigest()
    given = [value.encode() for name, value in fields if name == "v1"]
    return any(hmac.compare_digest(value, digest.encode()) for value in given)


def work(event):
    print(event["type"], event["id"], flush=True)


ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", 8080))), Receiver).serve_forever()

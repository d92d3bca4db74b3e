"""Calls the Platform API over HTTPS, with its address in API_URL and a key in PLATFORM_KEY:

platform("recordLeads", workspaceId=workspace_id, leads=leads)
"""

import hashlib
import json
import os
import time
import urllib.error
import urllib.request

# How many times a call that records is tried while the service fails. Repeating it changes nothing.
TRIES = 4


class PlatformError(Exception):
    """An error response. Its code is None if it came from something in between, such as a proxy."""

    def __init__(self, status, error):
        self.status = status
        self.code = error.get("code")
        self.details = error.get("details", {})
        super().__init__(error.get("message", f"HTTP status {status}"))


def platform(method, **input):
    """Calls a method and returns its result. Raises a PlatformError, or an OSError if there is no response."""
    for attempt in range(1, TRIES + 1):
        status, headers, body = send(method, input)
        answer = parse(body)
        if status == 200 and answer is not None:
            return answer
        if status < 500 or attempt == TRIES or not method.startswith("record"):
            raise PlatformError(status, (answer or {}).get("error", {}))
        seconds = headers.get("Retry-After", "")
        time.sleep(int(seconds) if seconds.isdigit() else 2 ** (attempt - 1))


def send(method, input):
    request = urllib.request.Request(
        f"{os.environ['API_URL']}/platform/{method}",
        data=json.dumps(input).encode(),
        headers={"Authorization": f"Bearer {os.environ['PLATFORM_KEY']}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def parse(body):
    """The JSON object in a body; None if it is something else, such as the HTML page of a proxy."""
    try:
        answer = json.loads(body)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


PREFIXES = {"automation": "aut_", "lead": "lea_", "run": "run_"}


def identifier(kind, workspace_id, reference):
    """The id that a record has or will have, so that a run can refer to a lead that is recorded later."""
    source = json.dumps([kind, workspace_id, reference], ensure_ascii=False, separators=(",", ":"))
    number = int.from_bytes(hashlib.sha256(source.encode()).digest()[:16], "big")
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return PREFIXES[kind] + digits.rjust(25, "0")

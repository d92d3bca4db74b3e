"""Calls the Platform API over HTTPS, with its address in API_URL and a key in PLATFORM_KEY:

platform("recordLeads", workspaceId=workspace_id, leads=leads)
"""

import hashlib
import json
import os
import urllib.error
import urllib.request


def platform(method, **input):
    request = urllib.request.Request(
        f"{os.environ['API_URL']}/platform/{method}",
        data=json.dumps(input).encode(),
        headers={"Authorization": f"Bearer {os.environ['PLATFORM_KEY']}", "Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        raise RuntimeError(json.load(error)["error"]["message"]) from error


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

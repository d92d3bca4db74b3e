import { spawnSync } from "node:child_process";
import type { ServerResponse } from "node:http";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { ROOT } from "../../scripts/shared/checkout.ts";
import { runProgram } from "./support/process.ts";
import { serve } from "./support/server.ts";

/** How a program calls a method, and prints either its result or the error's status, code and details. */
const CLIENTS = {
  "public_api.py": {
    program: "python3",
    args: (method: string) => [
      "-c",
      `import json, public_api as api
try: print(json.dumps(api.platform("${method}")))
except api.PlatformError as error: print(json.dumps([error.status, error.code, error.details, str(error)]))`,
    ],
  },
  "public_api.php": {
    program: "php",
    args: (method: string) => [
      "-r",
      `require "public_api.php";
try { echo json_encode(platform("${method}", [])); }
catch (PlatformError $error) {
  echo json_encode([$error->status, $error->errorCode, (object) $error->details, $error->getMessage()]);
}`,
    ],
  },
};

/** Answers each request with the next response; what is asked beyond them hangs up. */
async function openService(...responses: ((response: ServerResponse) => void)[]) {
  const { url, close } = await serve((request, response) => {
    request.resume();
    const respond = responses.shift();
    respond ? respond(response) : response.destroy();
  });
  return { url, left: () => responses.length, [Symbol.asyncDispose]: close };
}

const fine = (response: ServerResponse) => response.end('{ "ids": [] }');
const failing = (response: ServerResponse) =>
  response
    .writeHead(500, { "Retry-After": "0" })
    .end('{ "error": { "code": "internal_error", "message": "Erreur", "details": {} } }');
const invalid = (response: ServerResponse) =>
  response
    .writeHead(400)
    .end(
      '{ "error": { "code": "invalid_request", "message": "leads: required", "details": { "parameter": "leads" } } }',
    );
const proxied = (response: ServerResponse) =>
  response.writeHead(502, { "Retry-After": "0" }).end("<html>Bad Gateway</html>");

describe.each(Object.entries(CLIENTS))("examples/platform/%s", (_, { program, args }) => {
  const isMissing = spawnSync(program, ["--version"]).status !== 0;
  const call = async (url: string, method: string) => {
    const { stdout, stderr } = await runProgram([program, ...args(method)], {
      cwd: join(ROOT, "examples/platform"),
      env: { ...process.env, API_URL: url, PLATFORM_KEY: "key", PYTHONDONTWRITEBYTECODE: "1" },
    });
    if (!stdout) throw new Error(stderr);
    return JSON.parse(stdout);
  };

  test.skipIf(isMissing)(
    "an error has the status, code, details and message of the body",
    async () => {
      await using service = await openService(invalid);
      const details = { parameter: "leads" };
      const error = [400, "invalid_request", details, "leads: required"];
      expect(await call(service.url, "recordLeads")).toEqual(error);
    },
  );

  test.skipIf(isMissing)(
    "a call that records is repeated while the service or a proxy fails",
    async () => {
      await using service = await openService(failing, proxied, fine);
      expect(await call(service.url, "recordLeads")).toEqual({ ids: [] });
    },
  );

  test.skipIf(isMissing)(
    "any other call is made once, and a proxy's page is an error without a code",
    async () => {
      await using service = await openService(proxied, fine);
      expect(await call(service.url, "createWorkspace")).toEqual([
        502,
        null,
        {},
        "HTTP status 502",
      ]);
      expect(service.left()).toBe(1);
    },
  );
});

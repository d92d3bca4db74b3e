import { execFile, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, describe, expect, test } from "vitest";
import { startRuntime } from "../../../scripts/shared/runtime.ts";
import { Document, type Entry } from "../../../site/openapi.ts";
import { exampleRequest, LANGUAGES } from "../../../site/requests.ts";
import { buildDocument } from "../../../src/http/document/document.ts";
import { opened } from "../../node/support/opened.ts";
import { startReceiver } from "../../node/support/receiver.ts";
import { openWorkspace } from "../../node/support/workspace.ts";

const run = promisify(execFile);

/** The file of the example in each language, and what runs it. */
const RUNNERS: Record<string, string[]> = {
  curl: ["example.sh", "sh"],
  Windows: ["example.ps1", "pwsh", "-NonInteractive", "-File"],
  TypeScript: ["example.ts", process.execPath, "--no-warnings"],
  Python: ["example.py", "python3"],
  PHP: ["example.php", "php"],
  Go: ["example.go", "go", "run"],
  "C#": ["example.cs", "dotnet", "run"],
  // Compiled once, and run once: optimising takes longer than it saves.
  Java: ["Example.java", "java", "-XX:TieredStopAtLevel=1"],
  Ruby: ["example.rb", "ruby"],
};

/** They may be missing in CI, too: each would take a minute to install. */
const OPTIONAL = ["Windows", "Go", "C#", "Java", "Ruby"];

const entries = new Document(buildDocument("https://unused.example")).groups
  .flatMap(({ entries }) => entries)
  .filter(({ method }) => method !== "EVENT");

/** One operation for each method: the others differ in their path, and each program takes a second to start. */
const ofEachMethod = new Map(entries.map((entry) => [entry.method, entry]));

const receiver = await opened(startReceiver());
const runtime = await opened(startRuntime());
const folder = mkdtempSync(join(tmpdir(), "requests-"));
afterAll(() => rmSync(folder, { recursive: true }));

test("there is an example of each operation in each language that the docs show", () => {
  expect(entries).toHaveLength(9);
  expect(LANGUAGES.map(({ name }) => name)).toEqual(Object.keys(RUNNERS));
});

describe.each(LANGUAGES)("in $name, the example", ({ name, write }) => {
  const [file = "", program = "", ...args] = RUNNERS[name] ?? [];
  const isInstalled = [["--version"], ["version"]].some(
    (question) => spawnSync(program, question).status === 0,
  );
  const isMissing = !isInstalled && (!process.env.CI || OPTIONAL.includes(name));

  test.skipIf(isMissing).each([...ofEachMethod])(
    "of %s gets the answer of the service",
    async (_, entry) => {
      const { apiKey, api, automationId, webhookId } = await openFilled();
      const ids = entry.path.startsWith("/v1/webhooks") ? webhookId : automationId;
      const source = write(exampleRequest(runtime.url.origin, withId(entry, ids)));
      // The host of the example does not exist.
      const runnable = source.replaceAll("https://hooks.example.com/automations", receiver.url);
      writeFileSync(join(folder, file), runnable);
      const { stdout } = await run(program, [...args, file], {
        cwd: folder,
        env: { ...process.env, API_KEY: apiKey },
      });
      const answer = stdout.trim() === "" ? null : JSON.parse(stdout);
      if (entry.method === "DELETE") expect(answer).toBeNull();
      else if (entry.method === "POST")
        expect(answer).toMatchObject({ url: receiver.url, secret: expect.any(String) });
      else if (entry.method === "PATCH")
        expect(answer).toMatchObject({ id: automationId, status: "paused" });
      else expect(answer).toEqual(await api("GET", exampleRequest("", withId(entry, ids)).url));
      const left = await api<{ data: unknown[] }>("GET", "/v1/webhooks");
      expect(left.data).toHaveLength({ DELETE: 0, POST: 2 }[entry.method] ?? 1);
    },
  );

  test.skipIf(isMissing)("fails if the service rejects a request", async () => {
    const [entry] = entries as [Entry];
    writeFileSync(join(folder, file), write(exampleRequest(runtime.url.origin, entry)));
    const refused = run(program, [...args, file], {
      cwd: folder,
      env: { ...process.env, API_KEY: "key_live_wrong" },
    });
    // curl prints the answer, whatever its status.
    if (name === "curl") expect((await refused).stdout).toContain("invalid_api_key");
    else await expect(refused).rejects.toThrow();
  });
});

/** A workspace with two leads, a run, an automation and a subscription. */
async function openFilled() {
  const workspace = await openWorkspace(runtime);
  await workspace.recordLeads(["1", "2"]);
  const [automationId = ""] = await workspace.recordAutomations(["1"]);
  await workspace.recordRuns(automationId, ["1"]);
  const { id: webhookId } = await workspace.subscribe(receiver.url);
  return { ...workspace, automationId, webhookId };
}

/** The entry with an id that exists as its example. */
function withId({ operation, ...entry }: Entry, id: string): Entry {
  const parameters = operation.parameters.map((one: { name: string }) =>
    one.name === "id" ? { ...one, example: id } : one,
  );
  return { ...entry, operation: { ...operation, parameters } };
}

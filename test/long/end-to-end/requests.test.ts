import { execFile, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Document, type Entry } from "../../../site/openapi.ts";
import { exampleRequest, LANGUAGES } from "../../../site/requests.ts";
import { buildDocument } from "../../../src/http/document/document.ts";
import { shareRuntime } from "../../node/support/local-runtime.ts";
import { opened } from "../../node/support/opened.ts";
import { startReceiver } from "../../node/support/receiver.ts";
import { openWorkspace } from "../../node/support/workspace.ts";

const run = promisify(execFile);

/** The file of an example, and what runs it. */
interface Runner {
  file: string;
  run: string[];
  /** Compiles all examples at once, each in a package with the name of its method: one by one takes four times as long. */
  compile?: string[];
}

const RUNNERS: Record<string, Runner> = {
  curl: { file: "example.sh", run: ["sh"] },
  Windows: { file: "example.ps1", run: ["pwsh", "-NonInteractive", "-File"] },
  TypeScript: { file: "example.ts", run: [process.execPath, "--no-warnings"] },
  Python: { file: "example.py", run: ["python3"] },
  PHP: { file: "example.php", run: ["php"] },
  Go: { file: "example.go", run: ["go", "run"] },
  "C#": { file: "example.cs", run: ["dotnet", "run"] },
  Java: {
    file: "Example.java",
    compile: ["javac"],
    // Each is run once: optimising, and threads that free memory, take longer than they save.
    run: ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"],
  },
  Ruby: { file: "example.rb", run: ["ruby"] },
};

/** They may be missing in CI, too: each would take a minute to install. */
const OPTIONAL = ["Windows", "Go", "C#", "Java", "Ruby"];

const entries = new Document(buildDocument("https://unused.example")).groups
  .flatMap(({ entries }) => entries)
  .filter(({ method }) => method !== "EVENT");

/** One operation for each method: the others differ in their path, and a program takes a second to start. */
const ofEachMethod = new Map(entries.map((entry) => [entry.method, entry]));

const receiver = await opened(startReceiver());
const runtime = await shareRuntime();
const root = mkdtempSync(join(tmpdir(), "requests-"));
afterAll(() => rmSync(root, { recursive: true }));

test("there is an example of each operation in each language that the docs show", () => {
  expect(entries).toHaveLength(9);
  expect(LANGUAGES.map(({ name }) => name)).toEqual(Object.keys(RUNNERS));
});

describe.each(LANGUAGES)("in $name, the example", ({ name, write }) => {
  const { file, run: command, compile } = RUNNERS[name] ?? expect.unreachable();
  const [program = "", ...options] = command;
  const isInstalled = [["--version"], ["version"]].some(
    (question) => spawnSync(program, question).status === 0,
  );
  const isMissing = !isInstalled && (!process.env.CI || OPTIONAL.includes(name));
  const folder = join(root, name);
  let workspace: Awaited<ReturnType<typeof openFilled>>;

  /** The request of an entry, with an id that exists. */
  const requestOf = (entry: Entry, origin: string) => {
    const { webhookId, automationId } = workspace;
    const id = entry.path.startsWith("/v1/webhooks") ? webhookId : automationId;
    return exampleRequest(origin, withId(entry, id));
  };

  beforeAll(async () => {
    if (isMissing) return;
    workspace = await openFilled();
    const files = [...ofEachMethod].map(([method, entry]) => {
      const source = write(requestOf(entry, runtime.url.origin))
        // The host of the example does not exist.
        .replaceAll("https://hooks.example.com/automations", receiver.url);
      mkdirSync(join(folder, method), { recursive: true });
      writeFileSync(join(folder, method, file), compile ? `package ${method};\n${source}` : source);
      return join(method, file);
    });
    const [compiler, ...words] = compile ?? [];
    if (compiler) await run(compiler, [...words, ...files], { cwd: folder });
  });

  const start = (method: string, apiKey: string) => {
    const path = compile ? `${method}.${file.replace(/\..*/, "")}` : join(method, file);
    const env = { ...process.env, API_KEY: apiKey };
    return run(program, [...options, path], { cwd: folder, env });
  };

  test.skipIf(isMissing).each([...ofEachMethod])(
    "of %s gets the answer of the service",
    async (method, entry) => {
      const { apiKey, api, automationId, webhookId } = workspace;
      const { stdout } = await start(method, apiKey);
      const answer = stdout.trim() === "" ? null : JSON.parse(stdout);
      const listed = await api<{ data: { id: string }[] }>("GET", "/v1/webhooks");
      const ids = listed.data.map(({ id }) => id);
      if (method === "GET") expect(answer).toEqual(await api("GET", requestOf(entry, "").url));
      if (method === "PATCH") expect(answer).toMatchObject({ id: automationId, status: "paused" });
      if (method === "POST") {
        expect(answer).toMatchObject({ url: receiver.url, secret: expect.any(String) });
        expect(ids).toContain(answer.id);
      }
      if (method === "DELETE") {
        expect(answer).toBeNull();
        expect(ids).not.toContain(webhookId);
      }
    },
  );

  test.skipIf(isMissing)("fails if the service rejects a request", async () => {
    const refused = start("GET", "key_live_wrong");
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

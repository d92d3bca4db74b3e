import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { startRuntime } from "../../../scripts/shared/runtime.ts";
import { createSigner, mintSecret, signatureHeaders } from "../../../src/webhooks/signature.ts";
import { type BuiltClient, buildClient } from "../../node/support/client.ts";
import { freePort } from "../../node/support/examples.ts";
import { opened } from "../../node/support/opened.ts";
import { type Post, startReceiver } from "../../node/support/receiver.ts";
import { until } from "../../support/until.ts";

const runtime = await opened(startRuntime());
const receiver = await opened(startReceiver());
const built = (await buildClient(runtime.url.origin)) as BuiltClient;
afterAll(() => built?.remove());

beforeEach((t) => {
  if (!built) t.skip("the package registry cannot be reached");
});

async function openWorkspace() {
  const { PLATFORM } = runtime.env;
  const { workspaceId } = await PLATFORM.createWorkspace({ name: "Agence" });
  const apiKey = String((await PLATFORM.createApiKey({ workspaceId })).apiKey);
  const client = new built.main.Client({ url: runtime.url.origin, apiKey });
  return { workspaceId, apiKey, client };
}

const AGENT = { reference: "lyon", name: "Agence Lumière Lyon" };

function recordLead(workspaceId: string, reference: string) {
  const lead = { reference, source: "widget" as const, agent: AGENT, name: "Zoë “€” 🌻" };
  return runtime.env.PLATFORM.recordLeads({ workspaceId, leads: [lead] });
}

describe("verifyDelivery", () => {
  let post: Post;
  let signature: string;
  let secret: string;
  let _webhookId: string;
  let workspaceId: string;

  beforeAll(async () => {
    if (!built) return;
    const opened = await openWorkspace();
    ({ workspaceId } = opened);
    const subscription = { url: `${receiver.url}/hooks`, events: ["lead.created"] };
    ({ id: _webhookId, secret } = await opened.client.createSubscription(subscription));
    await recordLead(workspaceId, "lead-1");
    await until(() => receiver.posts.length > 0);
    post = receiver.posts[0] as Post;
    signature = String(post.headers["x-service-signature"]);
  });

  const verify = (header: unknown, body = post.body, key = secret) =>
    built.webhooks.verifyDelivery(body, header, key);
  const refusal = () => expect.objectContaining({ name: "SignatureError" });
  /** The header that signs the delivery as if it were posted `shiftMs` from now. */
  const signAt = async (shiftMs: number, ...secrets: string[]) => {
    const sign = await createSigner(...(secrets.length > 0 ? secrets : [secret]));
    const headers = await sign("evt_1", post.body.toString(), Date.now() + shiftMs);
    return headers["X-Service-Signature"] ?? "";
  };

  test("returns the event of a real delivery", () => {
    const event = verify(signature);
    expect(event).toEqual(JSON.parse(post.body.toString()));
    expect(event).toMatchObject({ type: "lead.created", data: { name: "Zoë “€” 🌻" } });
  });

  test("accepts 4 minutes of difference in either direction, and rejects 6", async () => {
    for (const minutes of [-4, 4])
      expect(verify(await signAt(minutes * 60_000))).toHaveProperty("id");
    for (const minutes of [-6, 6]) {
      const header = await signAt(minutes * 60_000);
      expect(() => verify(header)).toThrow(refusal());
    }
  });

  test("rejects another body, another secret, and an old signature with a new time", async () => {
    expect(() => verify(signature, Buffer.concat([post.body, Buffer.from(" ")]))).toThrow(
      refusal(),
    );
    expect(() => verify(signature, post.body, mintSecret())).toThrow(refusal());
    const old = await signAt(-6 * 60_000);
    const renewed = old.replace(/t=\d+/, `t=${Math.floor(Date.now() / 1000)}`);
    expect(() => verify(renewed)).toThrow(refusal());
  });

  test.each([undefined, null, "", "t=,v1=", "t=1", "v1=1", "t=abc,v1=é", "t=1e3", ["t=1", "v1=1"]])(
    "rejects the signature %j",
    (header) => expect(() => verify(header)).toThrow(refusal()),
  );

  test("rejects a timestamp in an unusual format", async () => {
    const ahead = await signAt(6 * 60_000);
    for (const disguise of ["t=1,t=$1", "t=$1,t=1", "t=$1e-6", "t= $1", "t=-$1"])
      expect(() => verify(ahead.replace(/^t=(\d+)/, disguise))).toThrow(refusal());
  });

  test("finds the valid signature among several, wherever it is", async () => {
    const other = mintSecret();
    for (const secrets of [
      [secret, other],
      [other, secret],
    ])
      expect(verify(await signAt(0, ...secrets))).toHaveProperty("id");
    const wrong = await signAt(0, other, mintSecret());
    expect(() => verify(wrong)).toThrow(refusal());
  });
});

describe("npm run events", () => {
  let program: ChildProcess;
  const lines: string[] = [];

  afterAll(() => program?.kill("SIGKILL"));

  test("prints each event as it arrives, rejects forged ones, and removes its subscription", async () => {
    const { PLATFORM } = runtime.env;
    const { workspaceId, apiKey, client } = await openWorkspace();
    const rest = { type: "lead_ads", provider: "facebook", agent: AGENT } as const;
    const automations = [{ reference: "1", status: "active" as const, ...rest }];
    const { ids } = await PLATFORM.recordAutomations({ workspaceId, automations });
    const automationId = String(ids[0]);
    const port = await freePort();
    const settings = { API_URL: runtime.url.origin, API_KEY: apiKey, PORT: String(port) };
    program = spawn(process.execPath, ["dist/events.js"], {
      cwd: built.folder,
      env: { ...process.env, ...settings },
      stdio: ["ignore", "pipe", "pipe"],
    });
    const { stdout } = program;
    if (stdout) createInterface({ input: stdout }).on("line", (line) => lines.push(line));
    const url = `http://127.0.0.1:${port}`;
    await until(() => lines.length > 0);
    expect(lines).toEqual([`Listening for events at ${url}. Ctrl-C unsubscribes.`]);

    await client.pauseAutomation(automationId);
    await recordLead(workspaceId, "lead-1");
    const run = {
      reference: "1",
      automationId,
      status: "partial",
      triggerType: "lead_ads",
    } as const;
    await PLATFORM.recordRuns({ workspaceId, runs: [run] });
    await until(() => lines.length > 3);
    expect(
      lines
        .slice(1)
        .map((line) => line.replace(/evt_\w+/, "evt_…"))
        .toSorted(),
    ).toEqual([
      "automation.status_changed evt_… Réponse aux formulaires publicitaires – Agence Lumière Lyon is paused",
      "lead.created evt_… Zoë “€” 🌻 (widget)",
      "run.completed evt_… lead_ads: partial",
    ]);

    const body = JSON.stringify({ id: "evt_1", type: "lead.created", data: {} });
    const headers = await signatureHeaders(mintSecret(), "evt_1", body, Date.now());
    const forged = await fetch(url, { method: "POST", headers, body });
    expect(forged.status).toBe(401);
    expect(lines).toHaveLength(4);

    // Ctrl-C sends one from the terminal, and another through npm.
    program.kill("SIGINT");
    await new Promise((resolve) => setTimeout(resolve, 5));
    program.kill("SIGINT");
    const [code] = await once(program, "exit");
    expect(code).toBe(0);
    for await (const subscription of client.listSubscriptions())
      expect.unreachable(subscription.url);
    expect((await PLATFORM.ledger({ workspaceId })).delivered).toBe(3);
  });
});

import { createHmac, randomUUID } from "node:crypto";
import { once } from "node:events";
import { appendFileSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import type { IncomingHttpHeaders } from "node:http";
import { createServer as createSecureServer } from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { Webhook as StandardWebhook } from "standardwebhooks";
import { describe, expect, test, vi } from "vitest";
import { openApi } from "../../../scripts/shared/local-api.ts";
import { signatureFault } from "../../../scripts/shared/receiver.ts";
import { urlRules } from "../../../scripts/start/url-rules.ts";
import { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { SUBSCRIPTIONS_MAX } from "../../../src/contract/limits.ts";
import type { PageBody } from "../../../src/http/paging.ts";
import type { PlatformOutput } from "../../../src/platform/operations.ts";
import type { Lead } from "../../../src/records/leads.ts";
import type { Webhook } from "../../../src/subscriptions/subscriptions.ts";
import { SELF_SIGNED } from "../../node/support/certificate.ts";
import { type Command, startLocalServer } from "../../node/support/local-server.ts";
import { opened } from "../../node/support/opened.ts";
import { openPortalSession } from "../../node/support/portal-session.ts";
import { childrenOf, startInTerminal } from "../../node/support/process.ts";
import { type Answer, type Post, startReceiver } from "../../node/support/receiver.ts";
import { serve } from "../../node/support/server.ts";
import { until } from "../../support/until.ts";

type Deliveries = PlatformOutput<"listDeliveries">;

const PLATFORM_KEY = Buffer.alloc(32, "key").toString("base64");
const ANOTHER = '\n[[d1_databases]]\nbinding = "DB_2"\ndatabase_name = "public-api-2"\n';
const server = await opened(
  startLocalServer((folder) => appendFileSync(join(folder, "wrangler.toml"), ANOTHER), {
    PLATFORM_KEYS: `crm:${PLATFORM_KEY}`,
  }),
);
const api = openApi(server.base, String(server.state.apiKey));
const isLinux = process.platform === "linux";
let answer: Answer = 200;
const target = await opened(startReceiver(() => answer));

/** Starts `npm run listen`. @returns it, with the secret that it prints. */
async function listen(...args: string[]): Promise<Command & { secret: string }> {
  const listener = server.start("listen", ...args);
  const shown = () => /Signing secret: (\S+)\n/.exec(listener.output());
  await until(() => shown() !== null);
  return { ...listener, secret: shown()?.[1] ?? "" };
}

/** Runs a command to its end. */
async function run(command: string, ...args: string[]) {
  const started = server.start(command, ...args);
  const code = await started.ended;
  return { code, output: started.output() };
}

/** Calls the Platform API over HTTPS, which is quicker than a command. */
async function platform<T>(method: string, input: object): Promise<T> {
  const response = await fetch(`${server.base}/platform/${method}`, {
    method: "POST",
    headers: { Authorization: `Bearer ${PLATFORM_KEY}`, "Content-Type": "application/json" },
    body: JSON.stringify(input),
  });
  if (!response.ok) throw new Error(`${method}: ${await response.text()}`);
  return (await response.json()) as T;
}

/** Causes a `lead.created` event. */
function recordLead() {
  const agent = { reference: "agent", name: "Agence" };
  const leads = [{ reference: randomUUID(), source: "crm", agent }];
  return platform("recordLeads", { workspaceId: server.state.workspaceId, leads });
}

/** The URLs of the subscribed listeners. */
async function listeners(): Promise<string[]> {
  const { data } = await api<PageBody<Webhook>>("GET", "/v1/webhooks?limit=100");
  return data.map(({ url }) => url).filter((url) => url.endsWith("/npm-run-listen"));
}

function endByCtrlC(listener: Command): Promise<number | null> {
  listener.child.kill("SIGINT");
  return listener.ended;
}

test("A second npm start in one checkout is refused in one sentence", async () => {
  const second = server.start("start");
  expect(await second.ended).toBe(1);
  expect(second.output()).toContain("npm start already runs in this checkout: stop it, or start");
  expect((await fetch(`${server.base}/health`)).status).toBe(200);
});

test("npm start migrates and serves each database of wrangler.toml", async () => {
  const { items } = await platform<PlatformOutput<"databases">>("databases", {});
  expect(items).toMatchObject(
    ["DB", "DB_2"].map((database) => ({ database, sizeBytes: expect.any(Number) })),
  );
  const created = { name: "Horizon", database: "DB_2" };
  const { workspaceId } = await platform<{ workspaceId: string }>("createWorkspace", created);
  const { apiKey } = await platform<{ apiKey: string }>("createApiKey", { workspaceId });
  const agent = { reference: "agent-1", name: "Lumière" };
  const leads = [{ reference: "1", source: "crm", agent, name: "Zoë" }];
  const { ids } = await platform<{ ids: string[] }>("recordLeads", { workspaceId, leads });
  const page = await openApi(server.base, apiKey)<PageBody<Lead>>("GET", "/v1/leads");
  expect(page.data).toMatchObject([{ id: ids[0], name: "Zoë" }]);
});

test("The log of npm start has what the service prints", async () => {
  await api("GET", "/v1/runs");
  await expect.poll(server.log).toMatch(/"event":"request".*"route":"\/v1\/runs"/);
});

describe("npm start -- --strict", () => {
  /** Its rules with the resolver of the environment, and what the terminal says. */
  async function rulesWith(resolver: string) {
    vi.stubEnv("DNS_OVER_HTTPS_URL", resolver);
    try {
      return await urlRules(true);
    } finally {
      vi.unstubAllEnvs();
    }
  }

  test("looks hosts up, and accepts no URL on this machine", async () => {
    const Answer = [{ type: 1, data: "93.184.216.34", TTL: 60 }];
    const resolver = await serve((_, response) =>
      response.end(JSON.stringify({ Status: 0, Answer })),
    );
    const { rules, told } = await rulesWith(resolver.url);
    await resolver.close();
    expect(rules).toEqual({ DNS_OVER_HTTPS_URL: resolver.url });
    expect(told).toContain(`Hosts are looked\nup with ${resolver.url}.`);
    expect((await urlRules(false)).rules).toEqual({ ALLOW_LOCAL_WEBHOOKS: "true" });
  });

  test.each([
    [
      "http://127.0.0.1:9/",
      "http://127.0.0.1:9/ does not respond. In production, too, they are then",
    ],
    ["", "DNS_OVER_HTTPS_URL is empty."],
  ])("says with the resolver %j that hosts are not looked up", async (url, sentence) => {
    expect((await rulesWith(url)).told).toContain(sentence);
  });
});

describe("the terminal of npm start", () => {
  test("shows an address, a key to paste, and a link to the portal that is new each time", async () => {
    expect(server.output()).toContain(`  ${server.base}/docs  `);
    expect(server.output()).toMatch(/^ {2}export API_KEY=key_live_\w{32}$/m);
    const [, address = ""] = /^ {2}(\S+\/portal) {2}/m.exec(server.output()) ?? [];
    const { origin } = new URL(server.base);
    const follow = async () =>
      (await fetch(address, { redirect: "manual" })).headers.get("Location");
    const link = String(await follow());
    expect(link.startsWith(`${origin}/portal#`)).toBe(true);
    await until(async () => (await follow()) !== link);
    const token = await openPortalSession(new URL(link));
    expect((await fetch(`${origin}/portal`)).status).toBe(200);
    const read = async (path: string) => {
      const headers = { Authorization: `Bearer ${token}` };
      const answer = await fetch(`${origin}/portal/api/webhooks${path}`, { headers });
      return ((await answer.json()) as { items: Record<string, string>[] }).items;
    };
    await until(() => server.output().includes("signature verified"));
    const [webhook] = await read("");
    await until(
      async () => (await read(`/${webhook?.webhookId}/deliveries`))[0]?.state === "delivered",
    );
  });

  test("has keys of callers over HTTPS, which no command line and no log shows", async () => {
    const call = (key: string) =>
      fetch(`${server.base}/platform/listWorkspaces`, {
        method: "POST",
        headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
        body: "{}",
      });
    const file = join(server.folder, ".wrangler/server.json");
    expect(statSync(file).mode & 0o777).toBe(0o600);
    const { platformKey } = JSON.parse(readFileSync(file, "utf8"));
    for (const key of [PLATFORM_KEY, platformKey]) expect((await call(key)).status).toBe(200);
    expect((await call(PLATFORM_KEY.toLowerCase())).status).toBe(401);
    expect(server.log()).not.toContain(platformKey);
    if (!isLinux) return;
    const familyOf = (pid: number): number[] => [pid, ...childrenOf(pid).flatMap(familyOf)];
    const lines = familyOf(Number(server.child.pid)).map((pid) =>
      readFileSync(`/proc/${pid}/cmdline`, "utf8"),
    );
    expect(lines.join()).toContain("workerd");
    for (const key of [PLATFORM_KEY, platformKey]) expect(lines.join()).not.toContain(key);
  });

  test("stays as it is while Platform calls succeed", async () => {
    const events = () => server.output().match(/^[\d:]{8} {2}.* signature verified\n/gm) ?? [];
    await until(() => events().length === 1);
    const before = server.output();
    expect((await run("platform", "ledger")).code).toBe(0);
    // Whatever was shown of the call came before this.
    await recordLead();
    await until(() => events().length === 2);
    expect(server.output()).toBe(before + events()[1]);
  });
});

test("npm run listen shows and forwards every event that npm run trigger causes", async () => {
  const listener = await listen("--forward", `${target.url}/hook?from=listen`);
  expect(listener.output()).toContain(`forwarding to ${target.url}/hook?from=listen.`);
  const statuses: string[] = [];
  for (const kind of [...WebhookEvent.options, "automation.status_changed"]) {
    const before = target.posts.length;
    const { code, output } = await run("trigger", kind);
    await until(() => target.posts.length > before);
    const { path, headers, body } = target.posts.at(-1) as Post;
    const event = JSON.parse(body.toString());
    expect([path, event.type]).toEqual(["/hook?from=listen", kind]);
    expect([code, output]).toEqual([0, `${kind}  ${event.id}  ${event.data.id}\n`]);
    if (kind === "automation.status_changed") statuses.push(event.data.status);
    // What receivers have to take as it is.
    else expect(body.toString()).toContain("\u2028");
    // Both signatures match these bytes.
    const signed = headers["x-service-signature"];
    expect(signatureFault(listener.secret, signed, body, Date.now())).toBeNull();
    const standard = new StandardWebhook(listener.secret);
    expect(() => standard.verify(body, headers as Record<string, string>)).not.toThrow();
    expect(headers["content-type"]).toBe("application/json; charset=utf-8");
    expect(headers.host).toBe(new URL(target.url).host);
    await until(() => listener.output().includes(`${kind}  ${event.id}  200\n`));
    await until(() => listener.output().includes(`X-Service-Signature: ${signed}\n${body}\n`));
  }
  expect(statuses.toSorted()).toEqual(["active", "paused"]);
  expect(await endByCtrlC(listener)).toBe(0);
});

test("npm run listen forwards to a gateway that requires a header, and with a certificate of its own", async () => {
  const seen: IncomingHttpHeaders[] = [];
  const secure = createSecureServer(SELF_SIGNED, (request, response) => {
    seen.push(request.headers);
    response.writeHead(204).end();
  }).listen(0, "127.0.0.1");
  await once(secure, "listening");
  const url = `https://127.0.0.1:${(secure.address() as AddressInfo).port}/`;
  const listener = await listen("--forward", url, "--insecure", "--header", "X-Token: abc");
  // Any page that a browser shows can send this, and gets no token.
  const [port] = await listeners();
  expect((await fetch(String(port), { method: "POST", body: "{}" })).status).toBe(401);
  await recordLead();
  await until(() => seen.length > 0);
  const [, id] = /X-Service-Webhook: (whk_\w+)\n/.exec(listener.output()) ?? [];
  expect(seen[0]).toMatchObject({ "x-token": "abc", "x-service-webhook": id });
  expect(await endByCtrlC(listener)).toBe(0);
  secure.close();
  secure.closeAllConnections();
});

test("npm run listen names the limit of subscriptions when there are too many", async () => {
  const { workspaceId } = server.state;
  const { items } = await platform<{ items: object[] }>("listWebhooks", { workspaceId });
  const setMax = (webhooksMax: number) => platform("updateWorkspace", { workspaceId, webhooksMax });
  await setMax(items.length);
  const refused = await run("listen");
  await setMax(SUBSCRIPTIONS_MAX);
  expect(refused).toEqual({
    code: 1,
    output: "The sample workspace has its maximum of webhooks: delete one in the portal.\n",
  });
});

// The terminal is made by Debian's `script`.
test.runIf(isLinux)(
  "npm run listen retries at once what has failed when r is pressed, instead of waiting",
  async () => {
    answer = 500;
    const script = `scripts/listen/listen.ts --forward ${target.url}`;
    const { child, output, ended } = startInTerminal(script, { cwd: server.folder });
    const see = (text: string) => until(() => output().includes(text));
    /**
     * Waits until the service has noted at least so many attempts. It may make one more by itself. Before that, it cannot be
     * told to retry at once.
     */
    const noted = async (attempts: number) => {
      const { data } = await api<PageBody<Webhook>>("GET", "/v1/webhooks?limit=100");
      const webhookId = data.find(({ url }) => url.endsWith("/npm-run-listen"))?.id;
      await until(async () => {
        const { items } = await platform<Deliveries>("listDeliveries", { webhookId });
        return (items[0]?.attempts ?? 0) >= attempts;
      });
    };
    await see("Press r to retry");
    child.stdin.write("r");
    await see("Nothing has failed.");
    await recordLead();
    await see("retries in 10 s at the earliest");
    await noted(1);
    child.stdin.write("r");
    await see("Retrying 1 event.");
    await see("retries in 1 min at the earliest");
    await noted(2);
    answer = 200;
    // Without the key, this test would time out.
    child.stdin.write("r");
    await see("  200\r\n");
    expect(new Set(target.posts.slice(-3).map(({ body }) => String(body))).size).toBe(1);
    child.stdin.write("\x03");
    expect((await ended).stdout).toContain("Stopped listening and removed the webhook.");
    expect(await listeners()).toEqual([]);
  },
);

test("npm run listen shows each request on one line, with control characters escaped, until its reader closes the pipe", async () => {
  const listener = await listen();
  const signatures: string[] = [];
  const post = async (body: string, secret = listener.secret) => {
    const time = Math.floor(Date.now() / 1000);
    const digest = createHmac("sha256", secret).update(`${time}.${body}`).digest("hex");
    const signature = `t=${time},v1=${digest}`;
    signatures.push(signature);
    const headers = { "X-Service-Signature": signature };
    const url = String((await listeners())[0]);
    return (await fetch(url, { method: "POST", headers, body })).status;
  };
  expect(await post("{}", "whsec_another")).toBe(401);
  expect(await post(JSON.stringify({ id: "evt_\u009b2J", type: "a\nb" }))).toBe(204);
  expect(await post("\u001b]52;c;cHduZWQ=\u0007\n00:00:00  lead.created")).toBe(204);
  await until(() => listener.output().includes("00:00:00"));
  const [, shown = ""] = listener.output().split(/X-Service-Webhook: whk_\w+\n/);
  expect(shown).not.toMatch(/(?!\n)[\p{Cc}]/u);
  expect(
    shown
      .trim()
      .replace(/^[\d:]{8} {2}/gm, "")
      .split("\n"),
  ).toEqual([
    "401: not a delivery to this webhook (signature does not match)",
    "",
    String.raw`a\nb  evt_\u009b2J`,
    `X-Service-Signature: ${signatures[1]}`,
    String.raw`{"id":"evt_\u009b2J","type":"a\nb"}`,
    "",
    "not an event  ?",
    `X-Service-Signature: ${signatures[2]}`,
    String.raw`\u001b]52;c;cHduZWQ=\u0007\n00:00:00  lead.created`,
  ]);
  // It notices that when it has something to show, and removes its webhook.
  listener.child.stdout?.destroy();
  await recordLead();
  await listener.ended;
  expect(await listeners()).toEqual([]);
});

test("npm run listen shows 502 while the target is down, and nothing after Ctrl-C", async () => {
  const gone = await startReceiver();
  await gone.close();
  const listener = await listen("--forward", gone.url);
  await recordLead();
  const told = "retries in 10 s at the earliest.\n";
  await until(() => listener.output().endsWith(told));
  expect(listener.output()).toContain("  502 (ECONNREFUSED)\n");
  expect(await endByCtrlC(listener)).toBe(0);
  const [, after] = listener.output().split(told);
  expect(after).toBe("\nStopped listening and removed the webhook.\n");
});

test("Listeners remove their own subscription at Ctrl-C, and that of a killed one at their start", async () => {
  const [one, two] = await Promise.all([listen(), listen()]);
  expect(one.secret).not.toBe(two.secret);
  expect(await listeners()).toHaveLength(2);
  await recordLead();
  for (const each of [one, two]) await until(() => each.output().includes("lead.created  evt_"));
  expect(await endByCtrlC(one)).toBe(0);
  const [left] = await listeners();
  two.child.kill("SIGKILL");
  await two.ended;
  expect(await listeners()).toEqual([left]);
  const next = await listen();
  expect(await listeners()).toEqual([expect.not.stringMatching(String(left))]);
  expect(await endByCtrlC(next)).toBe(0);
  expect(await listeners()).toEqual([]);
});

test("npm run listen -- --keep has the same subscription the next time", async () => {
  const file = join(server.folder, ".wrangler/listen.json");
  // As an editor or a copy may leave it.
  writeFileSync(file, "", { mode: 0o644 });
  const first = await listen("--keep");
  const kept = JSON.parse(readFileSync(file, "utf8"));
  expect(kept).toEqual({ id: expect.stringMatching(/^whk_/), secret: first.secret });
  expect(statSync(file).mode & 0o777).toBe(0o600);
  const second = await run("listen", "--keep");
  expect(second.code).toBe(1);
  expect(second.output).toMatch(/EADDRINUSE.*: is another listener running with --keep\?\n$/);
  expect(await endByCtrlC(first)).toBe(0);
  expect(first.output()).toContain("The webhook stays: --keep uses it again.");
  const before = await listeners();
  expect(before).toHaveLength(1);
  // Another listener leaves it alone, and somebody disables it.
  expect(await endByCtrlC(await listen())).toBe(0);
  await platform("disableWebhook", { webhookId: kept.id });
  const again = await listen("--keep");
  expect([again.secret, await listeners()]).toEqual([first.secret, before]);
  expect(await endByCtrlC(again)).toBe(0);
  await recordLead();
  const missed = await listen("--keep");
  await until(() => missed.output().includes("lead.created  evt_"));
  expect(await endByCtrlC(missed)).toBe(0);
  // Without the file, it is what a killed listener left.
  rmSync(file);
  const next = await listen("--keep");
  expect(next.secret).not.toBe(first.secret);
  expect(await endByCtrlC(next)).toBe(0);
  await api("DELETE", `/v1/webhooks/${JSON.parse(readFileSync(file, "utf8")).id}`);
  expect(await listeners()).toEqual([]);
});

const KINDS = WebhookEvent.options.join(", ");
const NO_URL = "--forward: expected a URL that starts with http:// or https://";
test.each([
  ["listen", ["--forward", "localhost:3000"], NO_URL],
  ["trigger", ["lead.created", "lead.created"], `one event is expected: ${KINDS}`],
  ["trigger", ["lead.invented"], `lead.invented: no such event; there are ${KINDS}`],
])("npm run %s says what is wrong with %j: %s", async (command, args, sentence) => {
  expect(await run(command, ...args)).toEqual({ code: 1, output: `${sentence}\n` });
});

test.runIf(isLinux)(
  "npm start goes on serving when a broken source builds again",
  { timeout: 120_000 },
  async () => {
    const index = join(server.folder, "src/index.ts");
    const source = readFileSync(index, "utf8");
    writeFileSync(index, `${source}const broken = ;\n`);
    await until(() => server.output().includes("Build failed"));
    writeFileSync(index, source);
    await api("GET", "/v1/leads");
    const [wrangler = 0] = childrenOf(Number(server.child.pid));
    process.kill(wrangler, "SIGKILL");
    await until(() => server.output().includes("The server ended: see"));
  },
);

test.each([["listen"], ["trigger", "lead.created"]])(
  "npm run %s says in one sentence that no server is running",
  async (command, ...args) => {
    await server.end();
    const output = "The local server is not running: start it with `npm start`.\n";
    expect(await run(command, ...args)).toEqual({ code: 1, output });
  },
);

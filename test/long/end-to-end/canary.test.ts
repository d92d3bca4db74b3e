import { expect, test } from "vitest";
import { openPortalSession } from "../../../scripts/shared/portal-session.ts";
import { startRuntime } from "../../../scripts/shared/runtime.ts";
import { canariesIn, formsOf } from "../../node/support/canary.ts";
import { opened } from "../../node/support/opened.ts";
import { startReceiver } from "../../node/support/receiver.ts";
import { openWorkspace } from "../../node/support/workspace.ts";
import { until } from "../../support/until.ts";

const logs: string[] = [];
const fine = await opened(startReceiver());
const failing = await opened(startReceiver(() => 500));
const runtime = await opened(startRuntime({ onLog: (line) => logs.push(line) }));

const PERSON = {
  name: "Zoë Canari-Nom",
  email: "canari.courriel@example.com",
  phone: "+33639980042",
  field: "canari-champ-libre",
};

/** The full output of a call of the Platform API that must fail. */
async function errorOf(call: () => PromiseLike<unknown>): Promise<string> {
  try {
    await call();
  } catch (error) {
    return `${error} ${(error as Error).stack}`;
  }
  throw new Error("the call succeeded");
}

test("the search finds a canary in every form", () => {
  for (const form of formsOf(PERSON.email))
    expect(canariesIn(`…${form}…`, { email: PERSON.email }), form).toEqual(["email"]);
  const inside = Buffer.from(`{"email":"${PERSON.email}","x":1}`).toString("base64");
  expect(canariesIn(inside, { email: PERSON.email })).toEqual(["email"]);
});

test("no log, error response or stored attempt contains a key, a secret, a person or a URL's query", async () => {
  const { PLATFORM, DB } = runtime.env;
  const { workspaceId, apiKey, subscribe } = await openWorkspace(runtime);
  const { url: link } = await PLATFORM.createPortalLink({ workspaceId });
  const linkToken = new URL(String(link)).hash.slice(1);
  const token = await openPortalSession(new URL(`/portal#${linkToken}`, runtime.url));
  const refused: string[] = [];
  const call = async (method: string, path: string, body?: string, key = apiKey) => {
    const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
    const init = { method, headers, ...(body !== undefined && { body }) };
    const answer = await fetch(new URL(path, runtime.url), init);
    const text = await answer.text();
    if (answer.status >= 400) refused.push(text);
    return { status: answer.status, text };
  };
  const [secret, otherSecret] = await Promise.all(
    [fine, failing].map(
      async ({ url }) => (await subscribe(`${url}/canari-chemin?jeton=canari-jeton`)).secret,
    ),
  );
  const canaries: Record<string, string> = {
    ...PERSON,
    key: apiKey,
    secret: String(secret),
    otherSecret: String(otherSecret),
    query: "canari-jeton",
    path: "canari-chemin",
    // Without the workspace, which logs contain.
    portalLink: linkToken.slice(linkToken.indexOf(".") + 1),
    portal: token.slice(token.indexOf(".") + 1),
  };

  const { field, ...person } = PERSON;
  const agent = { reference: "a", name: "A" };
  const known = { ...person, customFields: { canari: field } };
  const lead = { reference: "1", source: "crm" as const, agent, ...known };
  await PLATFORM.recordLeads({ workspaceId, leads: [lead] });
  await until(() => fine.posts.length === 1 && failing.posts.length === 1);
  // The subscriber is sent all of it, so that there are canaries to leak.
  const told = fine.posts[0]?.body.toString() ?? "";
  expect(canariesIn(told, canaries).sort()).toEqual(["email", "field", "name", "phone"]);

  // What a client can do wrong with them.
  const everything = Object.values(canaries).join(" ");
  const query = new URLSearchParams({ limit: everything, cursor: everything });
  for (const path of ["automations", "leads", "runs", "webhooks"])
    await call("GET", `/v1/${path}?${query}`);
  await call("GET", `/v1/automations/${encodeURIComponent(everything)}?${query}`);
  await call("GET", `/v1/${encodeURIComponent(everything)}`);
  await call("GET", `/${encodeURIComponent(everything)}`);
  await call("GET", "/v1/leads", undefined, `${apiKey}x`);
  for (const body of [
    JSON.stringify({ url: everything, events: [everything] }),
    JSON.stringify({ url: `https://user:${PERSON.field}@example.com/`, events: ["lead.created"] }),
    JSON.stringify({ status: everything }),
    everything,
  ]) {
    await call("POST", "/v1/webhooks", body);
    await call("PATCH", "/v1/automations/aut_x", body);
  }
  const hook = JSON.stringify({ url: "https://hooks.example.com/", events: ["lead.created"] });
  const listed = await call("GET", "/portal/api/webhooks", undefined, token);
  expect(listed.status).toBe(200);
  const own = `/portal/api/webhooks/${JSON.parse(listed.text).items[0].webhookId}`;
  const wrongBody = JSON.stringify({ type: everything, states: [everything] });
  for (const wrongly of [token, `${token}x`, linkToken, apiKey]) {
    if (wrongly !== linkToken) await call("POST", "/portal/api/session", undefined, wrongly);
    await call("GET", `${own}/deliveries?${query}&state=${query}`, undefined, wrongly);
    await call("GET", `${own}/deliveries/${encodeURIComponent(token)}`, undefined, wrongly);
    await call("GET", `/portal/${encodeURIComponent(token)}`, undefined, wrongly);
    for (const action of ["test", "redeliver", "secret", "enable"])
      await call("POST", `${own}/${action}`, wrongBody, wrongly);
    if (wrongly !== token) await call("POST", "/portal/api/webhooks", hook, wrongly);
  }
  // What the platform can do wrong with them, and what the database then says.
  const wrong = [
    { workspaceId, leads: [lead, { ...lead, source: everything as "crm" }] },
    { workspaceId: "wks_unknown", leads: [lead] },
  ];
  for (const input of wrong) refused.push(await errorOf(() => PLATFORM.recordLeads(input)));
  await DB.prepare("ALTER TABLE leads RENAME TO hidden").run();
  const broken = await call("GET", "/v1/leads");
  expect(broken.status).toBe(500);
  const leads = [{ ...lead, reference: "2" }];
  refused.push(await errorOf(() => PLATFORM.recordLeads({ workspaceId, leads })));
  await DB.prepare("ALTER TABLE hidden RENAME TO leads").run();
  await until(() => logs.some((line) => line.includes('"request_failed"')));

  const { results: attempts } = await DB.prepare("SELECT * FROM deliveries").all();
  expect(attempts).toHaveLength(2);
  // One, and another for each retry that has become due meanwhile.
  expect(logs.filter((line) => line.includes('"attempt_failed"')).length).toBeGreaterThan(0);
  const delivered = logs
    .filter((line) => line.includes('"dispatched"'))
    .map((line) => JSON.parse(line).delivered);
  expect(delivered.reduce((sum, count) => sum + count, 0)).toBe(1);
  expect(refused.length).toBeGreaterThan(15);
  expect(canariesIn(logs.join("\n"), canaries)).toEqual([]);
  expect(canariesIn(JSON.stringify(attempts), canaries)).toEqual([]);
  // The name of an unknown property is quoted; a value never is.
  expect(canariesIn(refused.join("\n"), canaries)).toEqual([]);
});

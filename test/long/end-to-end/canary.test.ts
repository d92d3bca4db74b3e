import { expect, test } from "vitest";
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

// The portal's tokens are looked for in its own tests.
test("no log, error response or stored attempt contains a key, a secret, a person or a URL's query", async () => {
  const { PLATFORM, DB } = runtime.env;
  const { workspaceId, apiKey, subscribe } = await openWorkspace(runtime);
  const [secret = "", otherSecret = ""] = await Promise.all(
    [fine, failing].map(
      async ({ url }) => (await subscribe(`${url}/canari-chemin?jeton=canari-jeton`)).secret,
    ),
  );
  const urlParts = { query: "canari-jeton", path: "canari-chemin" };
  const canaries = { ...PERSON, ...urlParts, key: apiKey, secret, otherSecret };
  const { field, ...person } = PERSON;
  const agent = { reference: "a", name: "A" };
  const known = { ...person, customFields: { canari: field } };
  const lead = { reference: "1", source: "crm" as const, agent, ...known };
  await PLATFORM.recordLeads({ workspaceId, leads: [lead] });
  await until(() => fine.posts.length > 0 && failing.posts.length > 0);
  // The subscriber is sent all of it, so that there are canaries to leak.
  const told = fine.posts[0]?.body.toString() ?? "";
  expect(canariesIn(told, canaries).sort()).toEqual(["email", "field", "name", "phone"]);

  // What a client can do wrong with them.
  const refused: string[] = [];
  const call = async (method: string, path: string, body: string | null = null, key = apiKey) => {
    const headers = { Authorization: `Bearer ${key}`, "Content-Type": "application/json" };
    const answer = await fetch(new URL(path, runtime.url), { method, headers, body });
    if (answer.status >= 400) refused.push(await answer.text());
    return answer.status;
  };
  const everything = Object.values(canaries).join(" ");
  const escaped = encodeURIComponent(everything);
  const query = new URLSearchParams({ limit: everything, cursor: everything });
  for (const path of [
    "automations",
    "leads",
    "runs",
    "webhooks",
    `automations/${escaped}`,
    escaped,
  ])
    await call("GET", `/v1/${path}?${query}`);
  await call("GET", `/${escaped}`);
  await call("GET", "/v1/leads", null, `${apiKey}x`);
  for (const body of [
    JSON.stringify({ url: everything, events: [everything] }),
    JSON.stringify({ url: `https://user:${PERSON.field}@example.com/`, events: ["lead.created"] }),
    JSON.stringify({ status: everything }),
    everything,
  ]) {
    await call("POST", "/v1/webhooks", body);
    await call("PATCH", "/v1/automations/aut_x", body);
  }
  expect(refused).toHaveLength(16);
  // What the platform can do wrong with them, and what the database then says.
  for (const input of [
    { workspaceId, leads: [lead, { ...lead, source: everything as "crm" }] },
    { workspaceId: "wks_unknown", leads: [lead] },
  ])
    refused.push(await errorOf(() => PLATFORM.recordLeads(input)));
  await DB.prepare("ALTER TABLE leads RENAME TO hidden").run();
  expect(await call("GET", "/v1/leads")).toBe(500);
  const leads = [{ ...lead, reference: "2" }];
  refused.push(await errorOf(() => PLATFORM.recordLeads({ workspaceId, leads })));
  await DB.prepare("ALTER TABLE hidden RENAME TO leads").run();
  for (const event of ["request_failed", "attempt_failed", "dispatched"])
    await until(() => logs.some((line) => line.includes(`"${event}"`)));

  const { results: attempts } = await DB.prepare("SELECT * FROM deliveries").all();
  expect(attempts).toHaveLength(2);
  // The name of an unknown property is quoted; a value never is.
  for (const text of [logs.join("\n"), JSON.stringify(attempts), refused.join("\n")])
    expect(canariesIn(text, canaries)).toEqual([]);
});

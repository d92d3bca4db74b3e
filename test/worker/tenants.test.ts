import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { z } from "@hono/zod-openapi";
import { describe, expect, test } from "vitest";
import { WebhookEvent } from "../../src/contract/enumerations.ts";
import { randomId } from "../../src/contract/ids.ts";
import { SUBSCRIPTIONS_MAX } from "../../src/contract/limits.ts";
import type { D1Client } from "../../src/db/client.ts";
import { ALLOWED, portal } from "../../src/http/portal/portal.ts";
import { invoke } from "../../src/platform/invoke.ts";
import type { Operation as PlatformOperation } from "../../src/platform/operation.ts";
import { OPERATIONS } from "../../src/platform/operations.ts";
import { deployedAs, openApi, send, withoutRateLimit } from "../support/api.ts";
import { DAY_MS, MINUTE_MS, subscribeMany } from "../support/deliveries.ts";
import { type Operation, operationsOf } from "../support/document.ts";
import { openFilledWorkspace } from "../support/filled.ts";
import { keepLog } from "../support/log-lines.ts";
import { meteredDatabase } from "../support/metered-database.ts";
import { DATABASE, inDatabase, WORKSPACE_DB } from "../support/placement.ts";
import { sessionToken } from "../support/portal.ts";
import { storeEvents } from "../support/stored-events.ts";

/*
 * What a workspace may learn of another one, or do to it, or make it pay: nothing, through any operation of
 * any door. The operations come from the OpenAPI document, the portal's routes and the Platform API.
 */

const lines = keepLog();

/** Rows behind the other workspace's ids: more than any statement of ours reads without them. */
const THEIRS = 40;
/** How many subscriptions a workspace has. */
const WEBHOOKS = 3;
/** Whose the ids are, of all workspaces that were opened. */
const owners = new Map<string, string>();

/** Ids by their prefixes, such as `aut_`. */
type Ids = Record<string, string>;
type Workspace = Awaited<ReturnType<typeof openTenant>>;

/** An operation of a door. */
interface Way {
  name: string;
  /** The prefixes of the ids that it takes and that only its caller's workspace may own. */
  takes: string[];
  isRead: boolean;
  /** How many subscriptions the other workspace has. */
  webhooks: number;
  /** Calls it. The answers for what is unknown and for what is foreign are the same. */
  call(fetch: Deployment, own: Workspace, ids: Ids): Promise<{ ok: boolean; text: string }>;
  /** Makes the other workspace's own calls. @returns other calls that it must not be harmed by. */
  provoke?(foreign: Workspace): Promise<Record<string, Way["call"]>>;
}

/** A deployment on a database. */
interface Deployment {
  env: Env;
  fetch: ReturnType<typeof deployedAs>;
}

/**
 * A workspace whose first subscription has many deliveries that are pending, although they are void. Its key creates
 * `created` of its subscriptions, and each creation is an entry in the audit trail.
 */
async function openTenant(startsAt: number, webhooks: number, created: number) {
  const workspace = await openFilledWorkspace(created);
  const { workspaceId, keyId } = workspace;
  const events = [...WebhookEvent.options];
  const others = await subscribeMany(workspaceId, webhooks - created, { events });
  const ids = [...workspace.ids, ...others];
  const webhookId = ids.find((id) => id.startsWith("whk_")) as string;
  const stored = await storeEvents(workspaceId, webhookId, THEIRS, startsAt, "pending");
  await WORKSPACE_DB.prepare(
    `UPDATE subscriptions SET has_to_end = 1, epoch = epoch + 1,
      cancelled_before = json_object('lead.created', epoch + 1) WHERE id = ?`,
  )
    .bind(webhookId)
    .run();
  const replayId = randomId("replay");
  const filter = { since: startsAt, until: startsAt, states: ["missed"], type: null, status: null };
  await WORKSPACE_DB.prepare(
    `INSERT INTO replays (workspace_id, subscription_id, id, filter, created_at, examined_at)
      VALUES (?, ?, ?, ?, ?5, ?5)`,
  )
    .bind(workspaceId, webhookId, replayId, JSON.stringify(filter), startsAt)
    .run();
  const all = [workspaceId, keyId, ...ids, ...stored, replayId];
  for (const id of all) owners.set(id, workspaceId);
  const first = Object.fromEntries(all.toReversed().map((id) => [id.slice(0, 4), id]));
  return { ...workspace, ids: [...ids, ...stored], first };
}

/** Replaces what stands for an id in an example, such as `aut_…`; `seen` gets each prefix. */
function withIds(example: unknown, ids: Ids, seen = (_: string) => {}): unknown {
  const text = JSON.stringify(example).replace(/"([a-z]{3}_)…"/g, (_, prefix: string) => {
    seen(prefix);
    return `"${ids[prefix]}"`;
  });
  // A time that does not become too old.
  return JSON.parse(
    text.replace(/"20\d\d-[^"]*Z"/g, `"${new Date(Date.now() - 1_000).toISOString()}"`),
  );
}

const { body: document } = await send<object>("/openapi.json");

const headersOf = ({ parameters }: Operation) =>
  parameters.filter((one) => one.in === "header").map(({ name }) => name);

/** The routes of the API. */
const ROUTES = operationsOf(document).map((operation): Way => {
  const { operationId, path, method, parameters, requestBody } = operation;
  const body = JSON.stringify(requestBody?.content["application/json"].example);
  const names = headersOf(operation);
  const isList = parameters.some(({ name }) => name === "cursor");
  const headers: Record<string, string> = body ? { "Content-Type": "application/json" } : {};
  const examples = parameters.filter((one) => one.in === "path").map(({ example }) => example);
  const at = (ids: Ids, query = "") =>
    path.replace(/\{\w+\}/, ids[String(examples[0]).slice(0, 4)] ?? "") + query;
  const ask = (query = "") =>
    (async ({ fetch }, { apiKey }, ids) => {
      const api = openApi(apiKey, fetch);
      const answer = await api.send(at(ids, query), { method, headers, ...(body && { body }) });
      return { ok: answer.status < 300, text: JSON.stringify(withoutRateLimit(answer)) };
    }) as Way["call"];
  return {
    name: operationId,
    takes: examples.map((example) => String(example).slice(0, 4)),
    isRead: method === "GET",
    // If one is created, there may be no more.
    webhooks: method === "POST" ? SUBSCRIPTIONS_MAX - names.length : WEBHOOKS,
    call: ask(),
    async provoke({ workspaceId, api, first }) {
      // Both workspaces send the same ones.
      for (const name of names) headers[name] = crypto.randomUUID();
      if (names.length > 0) {
        const sent = await api.send<{ id: string }>(path, { method, headers, body });
        owners.set(sent.body.id, workspaceId);
      }
      if (!isList) return {};
      const { body: page } = await api.get<{ next_cursor: string }>(at(first, "?limit=1"));
      return { "their cursor": ask(`?cursor=${page.next_cursor}`) };
    },
  };
});

const PORTAL = "/portal/api";
const tokens = new Map<string, Promise<string>>();

/** The token of a workspace's portal session: one for all its calls. */
function tokenOf(workspaceId: string): Promise<string> {
  const token = tokens.get(workspaceId) ?? sessionToken(workspaceId);
  tokens.set(workspaceId, token);
  return token;
}

const CREATION = `${PORTAL}/webhooks`;
/** The routes of the portal's API. */
const PORTAL_ROUTES = portal.routes
  .filter(({ method, path }) => method !== "ALL" && /\/api\/(?!session)/.test(path))
  .map(({ method, path }): Way => {
    const [, , name] =
      ALLOWED.find(([verb, below]) => verb === method && `${PORTAL}${below}` === path) ?? [];
    const {
      webhookId: _1,
      eventId: _2,
      ...example
    } = ((name && OPERATIONS[name].examples[0]) ?? {
      url: "https://ok-portal.example/",
      events: ["lead.created"],
    }) as Record<string, unknown>;
    const takes = [...path.matchAll(/:(\w+)Id/g)].map(
      ([, kind]) => ({ webhook: "whk_", event: "evt_" })[kind as string] as string,
    );
    const headers: Record<string, string> = { "Content-Type": "application/json" };
    const isCreation = method === "POST" && path === CREATION;
    return {
      name: `${method} ${path}`,
      takes,
      isRead: method === "GET",
      // If one is created, there may be no more.
      webhooks: isCreation ? SUBSCRIPTIONS_MAX - 1 : WEBHOOKS,
      async call({ fetch }, { workspaceId }, ids) {
        const api = openApi(await tokenOf(workspaceId), fetch);
        const body = JSON.stringify(withIds(example, ids));
        const answer = await api.send(
          path.replace(":webhookId", ids.whk_ ?? "").replace(":eventId", ids.evt_ ?? ""),
          method === "POST" ? { method, body, headers } : { method },
        );
        return { ok: answer.status < 300, text: JSON.stringify(withoutRateLimit(answer)) };
      },
      async provoke({ workspaceId }) {
        if (!isCreation) return {};
        // Both workspaces send the same one, which no API key's id tells apart.
        headers["Idempotency-Key"] = crypto.randomUUID();
        const api = openApi(await tokenOf(workspaceId));
        const body = JSON.stringify(example);
        const sent = await api.send<{ id: string }>(path, { method, headers, body });
        owners.set(sent.body.id, workspaceId);
        return {};
      },
    };
  });

/** What an operator names first: it is theirs to choose. */
const SCOPES = ["workspaceId", "webhookId", "keyId"];

/** The operations of the Platform API that are about one workspace, once for each of their examples. */
const PLATFORM = Object.entries<PlatformOperation>(OPERATIONS).flatMap(([method, operation]) =>
  operation.examples.flatMap((example, i): Way | [] => {
    const takes = new Set<string>();
    const scope = SCOPES.filter((name) => name in (example as object));
    // What is about all workspaces is for operators.
    if (scope.length === 0) return [];
    const rest = Object.entries(example as object).filter(([name]) => !SCOPES.includes(name));
    withIds(rest, {}, (prefix) => takes.add(prefix));
    return {
      name: `${method} ${i + 1}`,
      takes: [...takes],
      isRead: false,
      webhooks: WEBHOOKS,
      async call({ env }, { first }, ids) {
        const input = { ...(withIds(example, ids) as object) } as Record<string, unknown>;
        for (const name of scope)
          input[name] =
            first[{ workspaceId: "wks_", webhookId: "whk_", keyId: "key_" }[name] as string];
        if ("database" in input) input.database = DATABASE;
        const ctx = createExecutionContext();
        const answer = await invoke(method, operation, { env, ctx }, input, "rpc").then(
          (shown) => {
            // Parsing drops what the operation does not declare.
            expect(operation.output.parse(shown), method).toEqual(shown);
            return { ok: true, text: JSON.stringify(shown) };
          },
          (error: Error) => ({ ok: false, text: error.message }),
        );
        await waitOnExecutionContext(ctx);
        return answer;
      },
    };
  }),
);

/** The names of the fields that hold ids. */
function idFields(schema: z.core.JSONSchema.BaseSchema, name = ""): string[] {
  const { title, properties = {}, items, anyOf = [] } = schema;
  const within = [...anyOf, items].filter((one) => typeof one === "object");
  return [
    ...(title === "id" ? [name] : []),
    ...within.flatMap((one) => idFields(one as z.core.JSONSchema.BaseSchema, name)),
    ...Object.entries(properties).flatMap(([own, one]) =>
      idFields(one as z.core.JSONSchema.BaseSchema, own),
    ),
  ];
}

test("each id that an operation takes is in one of its examples", () => {
  for (const [method, { input, examples }] of Object.entries<PlatformOperation>(OPERATIONS))
    for (const name of idFields(z.toJSONSchema(input, { io: "input", unrepresentable: "any" })))
      expect(JSON.stringify(examples), `${method}: ${name}`).toContain(`"${name}":`);
});

const ROWS = [
  ...["automations", "leads", "runs", "subscriptions", "events"].map(
    (table) => `SELECT * FROM ${table} WHERE workspace_id = ?`,
  ),
  `SELECT * FROM deliveries
    WHERE subscription_id IN (SELECT id FROM subscriptions WHERE workspace_id = ?)`,
];

/** What is stored of a workspace. */
async function rowsOf(workspaceId: string): Promise<string> {
  const results = await WORKSPACE_DB.batch(
    ROWS.map((sql) => WORKSPACE_DB.prepare(sql).bind(workspaceId)),
  );
  return JSON.stringify(results.map((one) => one.results));
}

/** Two workspaces; the other one is newer than any. */
interface Both {
  own: Workspace;
  foreign: Workspace;
}

const changesNothing = ({ name }: Way) =>
  /^(GET|read|list(?!AuditTrail)|find|export|count|ledger|backlog|createPortalLink)/.test(name);
/** What a later call may need is gone afterwards. */
const endsSomething = ({ name }: Way) =>
  /^(DELETE|delete|disable|end|erase|move|remove|revoke|roll|set)/.test(name);
/** The workspace that calls share, unless a call that is no read has leaked something. */
let shared: Workspace | null = null;
/**
 * The other workspaces of earlier calls, unless a call that is no read has leaked something, and may have changed them.
 * There is one for all operations that need the usual subscriptions, and one for each of the others.
 */
const untouched = new Map<string, Workspace>();
const placeOf = (way: Way) => (way.webhooks === WEBHOOKS ? "" : way.name);

/**
 * Opens two workspaces. Calls in sequence share theirs unless that must be as it was opened, and all calls of a way the
 * other one.
 */
async function openBoth(way: Way, isNew: boolean): Promise<Both> {
  const soon = Date.now() + MINUTE_MS;
  const own = (!isNew && shared) || (await openTenant(soon, WEBHOOKS, 0));
  if (!isNew) shared = own;
  // Newer than any other event, so that a list of all would begin with them.
  const foreign = untouched.get(placeOf(way)) ?? (await openTenant(soon + DAY_MS, way.webhooks, 1));
  untouched.set(placeOf(way), foreign);
  return { own, foreign };
}

/** The calls that a workspace must not be harmed by, after the other one's own, which are made once. */
async function provokedBy(way: Way, foreign: Workspace): Promise<Record<string, Way["call"]>> {
  const known = provocations.get(way);
  if (known?.foreign === foreign) return known.calls;
  const calls = (await way.provoke?.(foreign)) ?? {};
  provocations.set(way, { foreign, calls });
  return calls;
}
const provocations = new Map<Way, { foreign: Workspace; calls: Record<string, Way["call"]> }>();

/** What an operation gives away of another workspace, changes in it, or reads and writes because of it. */
async function leaksOf(
  way: Way,
  rewrite: (query: string) => string,
  { own, foreign }: Both,
): Promise<string[]> {
  const metered = meteredDatabase();
  const bindings: Env = {
    ...env,
    // The directory. If the workspaces live there too, the next line replaces it.
    DB: rewritten(env.DB, rewrite),
    ...inDatabase({ DB: rewritten(metered.DB, rewrite) }),
    PORTAL_REQUESTS: UNLIMITED,
    // A dispatch changes their rows, at whatever time it comes.
    DELIVERIES: UNANSWERED,
    SLOW_DELIVERIES: UNANSWERED,
  };
  const deployment = { env: bindings, fetch: deployedAs(bindings) };
  const leaks: string[] = [];
  const provoked = await provokedBy(way, foreign);
  const before = await rowsOf(foreign.workspaceId);
  const expectNothingOfTheirs = (what: string, shown: unknown) => {
    const text = typeof shown === "string" ? shown : JSON.stringify(shown);
    const ids = text.match(/\b[a-z]{3}_\w+/g) ?? [];
    const theirs = ids.filter((id) => (owners.get(id) ?? own.workspaceId) !== own.workspaceId);
    if (theirs.length > 0) leaks.push(`${what}: ${theirs.slice(0, 3)}`);
  };
  const ask = async (ids: Ids, call = way.call) => {
    const { read, written, statements } = metered.rows;
    const answer = await call(deployment, own, ids);
    const cost = {
      read: metered.rows.read - read,
      written: metered.rows.written - written,
      statements: metered.rows.statements - statements,
    };
    return { ...answer, ...cost };
  };
  for (const prefix of way.takes) {
    const at = (id: string) => ask({ ...own.first, [prefix]: id });
    // The isolate remembers the key.
    if (!remembered.has(own)) await at(`${prefix}${"1".repeat(25)}`);
    remembered.add(own);
    const unknown = await at(`${prefix}${"0".repeat(25)}`);
    const theirs = await at(foreign.first[prefix] as string);
    if (
      theirs.text !==
      unknown.text.replaceAll(`${prefix}${"0".repeat(25)}`, foreign.first[prefix] as string)
    )
      leaks.push(`${prefix}: ${theirs.text} instead of ${unknown.text}`);
    // Each statement may look up the row that the id names, and nothing behind it.
    if (theirs.read > unknown.read + theirs.statements || theirs.written > unknown.written)
      leaks.push(
        `${prefix}: ${theirs.read} and ${theirs.written} rows instead of ${unknown.read} and ${unknown.written}`,
      );
  }
  for (const [what, call] of Object.entries(provoked))
    expectNothingOfTheirs(what, (await ask(own.first, call)).text);
  const answer = await ask(own.first);
  // A lead of theirs that is read cannot be decrypted, and is left out.
  expectNothingOfTheirs(
    "leads",
    lines.filter((line) => line.includes("lead_decrypt_failed")),
  );
  lines.length = 0;
  if (!answer.ok) leaks.push(`its own: ${answer.text}`);
  const first = firstAnswers.get(way) ?? answer.text;
  firstAnswers.set(way, first);
  if (way.isRead && answer.text !== first) leaks.push(`its own: ${answer.text}`);
  expectNothingOfTheirs("its own", answer.text);
  expectNothingOfTheirs("its rows", await rowsOf(own.workspaceId));
  if ((await rowsOf(foreign.workspaceId)) !== before) leaks.push("their rows have changed");
  if (leaks.length > 0 && !way.isRead) {
    untouched.delete(placeOf(way));
    shared = null;
  }
  return leaks;
}

/** The workspaces that calls have been made for. */
const remembered = new Set<Workspace>();

/** What a read answered at first: any other answer has something of somebody else's in it. */
const firstAnswers = new Map<Way, string>();

const UNANSWERED = { sendBatch: async () => {} } as unknown as Queue;
const UNLIMITED = { limit: async () => ({ success: true }) } as unknown as Env["PORTAL_REQUESTS"];

/** The database, with each query as `rewrite` returns it. */
function rewritten<T extends D1Client>(db: T, rewrite: (query: string) => string): T {
  return {
    prepare: (query: string) => db.prepare(rewrite(query)),
    batch: (statements: D1PreparedStatement[]) => db.batch(statements),
  } as unknown as T;
}

/** A query's conditions on the owner of what it reads. */
const FILTER =
  /"(?:\w+"\."workspace_id|deliveries"\."subscription_id)" = (\?|"workspaces"\."id"|named\.value->>'workspaceId')/g;

/** Filters without which nothing leaks, by what precedes them in their query. */
const HARMLESS: [before: RegExp, why: string][] = [
  [
    /^update "subscriptions" set "idempotency_key" = \? where \($/,
    "a key that is a day old is void",
  ],
  [
    /^update "deliveries" set "due_at" = \? where $/,
    "the events are those of a subscription that has been found",
  ],
  [
    /\(SELECT count\(\*\) FROM json_each\(\?\) AS type\s+CROSS JOIN "deliveries" ON $/,
    "a bound on resends shows no data",
  ],
  [/NOT EXISTS \(SELECT 1 FROM "events"\s+WHERE $/, "an event's id is unique by itself"],
  [/AND EXISTS \(SELECT 1 FROM "subscriptions"\s+WHERE $/, "an event without deliveries is stored"],
  [
    /^DELETE FROM "audit_trail" WHERE .*\n\s+SELECT .* WHERE \($/,
    "a workspace has fewer changes than are pruned",
  ],
  [
    /^select "at" from "audit_trail" where \($/,
    "a workspace makes fewer lasting changes than a day allows",
  ],
  [
    /^insert into "audit_trail" [\s\S]* FROM "audit_trail" WHERE \($/,
    "a key makes all its changes in one workspace",
  ],
  [
    /from "audit_trail" where \(\("audit_trail"\."webhook_id" = \? and \+$/,
    "only a deletion that failed is an entry with the id of another workspace's webhook",
  ],
  [/^update "replays" set .* where \(\($/, "the id of a replay is unique by itself"],
  [
    /^update "deliveries" set "state" = coalesce\([\s\S]* ON $/,
    "the deliveries that a stop restores name their replay",
  ],
  [
    /^select "id", "slow", "next_message_at", .* from "subscriptions" where \($/s,
    "a wake-up message carries no data",
  ],
];
const met = new Set<string>();

const named = (ways: Way[]) => ways.map((way) => [way.name, way] as const);

const filtered = [
  // First, because keys of the portal have no API key's id before them.
  ...PORTAL_ROUTES.filter(({ name }) => name === `POST ${CREATION}`),
  ...ROUTES,
  ...PORTAL_ROUTES.filter(({ takes }) => takes.length > 0),
];
const others = [...ROUTES, ...PORTAL_ROUTES, ...PLATFORM]
  .filter((way) => !filtered.includes(way))
  .toSorted((a, b) => Number(changesNothing(b)) - Number(changesNothing(a)));

// In this order, because a filter is tried where it is met first.
describe("another workspace is neither shown, changed nor read", { shuffle: false }, () => {
  test.each(named(others))("by %s", async (_, way) => {
    // The audit trail shows the ids that earlier calls have named.
    const both = await openBoth(way, endsSomething(way) || way.name.startsWith("listAuditTrail"));
    expect(await leaksOf(way, (query) => query, both)).toEqual([]);
  });

  const planted = new Set<string>();
  test.each(named(filtered))("by %s, and would be without any one filter", async (_, way) => {
    const queries = new Set<string>();
    const observe = (query: string) => {
      queries.add(query);
      return query;
    };
    // Reads change nothing, and share theirs.
    const both = await openBoth(way, !way.isRead);
    expect(await leaksOf(way, observe, both)).toEqual([]);
    const filters = [...queries].flatMap((query) =>
      [...query.matchAll(FILTER)].map((match) => ({ query, match })),
    );
    expect(filters.length).toBeGreaterThan(0);
    // The portal decides first whose a subscription is; the statements behind that are those of the API.
    const wrong: string[] = [];
    for (const { query, match } of filters) {
      const before = query.slice(0, match.index);
      // Only routes that name a subscription show what the session's look-up of one finds.
      if (!way.takes.includes("whk_") && before.includes('left join "subscriptions"')) continue;
      if (planted.has(`${match.index} ${query}`)) continue;
      planted.add(`${match.index} ${query}`);
      // Its parameter stays, so that the others keep their places.
      const without =
        before + query.slice(match.index).replace(match[0], `${match[1]} IS NOT NULL`);
      const rewrite = (other: string) => (other === query ? without : other);
      const leaks = await leaksOf(way, rewrite, way.isRead ? both : await openBoth(way, true));
      const [, why] = HARMLESS.find(([place]) => place.test(before)) ?? [];
      if (why) met.add(why);
      if (leaks.length > 0 === Boolean(why)) wrong.push(`${why ?? "not noticed"}: ${without}`);
    }
    expect(wrong).toEqual([]);
  });

  test("but for those that are redundant", () => {
    expect([...met].toSorted()).toEqual(HARMLESS.map(([, why]) => why).toSorted());
  });
});

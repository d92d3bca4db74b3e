/**
 * A stand-in for Cloudflare's API, on this machine, for the real wrangler: an account with databases, queues
 * and Workers. It keeps what is created, refuses what Cloudflare refuses, and fails on a call that it does not
 * know. Databases are SQLite's, in memory, unless a test gives them another content.
 */
import { randomUUID } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import { DatabaseSync } from "node:sqlite";
import { buffer } from "node:stream/consumers";
import { serve } from "../../node/support/server.ts";

const ACCOUNT_ID = "0123456789abcdef0123456789abcdef";
const TOKEN = "token-of-the-account";
/** The present bookmark of every database. That of a time names the time. */
const NOW = "00000085-0000024c-00004c6d-8e61117bf38d7adb71b934ebbf891683";

interface Database {
  uuid: string;
  name: string;
  jurisdiction: string | null;
  content: DatabaseSync;
  /** Runs statements elsewhere, instead of in `content`. Returns the rows of each. */
  query?: (sql: string) => Promise<unknown[][]>;
  /** Goes back to a bookmark; without it, the account cannot. */
  restore?: (bookmark: string) => Promise<void>;
}

interface Queue {
  queue_id: string;
  queue_name: string;
  jurisdiction?: string;
  settings: Record<string, unknown>;
  producers: { type: "worker"; script: string }[];
  consumers: { consumer_id: string; type: "worker"; script: string }[];
}

interface Binding {
  name: string;
  type: string;
  /** The value of a secret. */
  text?: string;
  /** What a database or a queue is bound to. */
  id?: string;
  queue_name?: string;
}

interface Version {
  id: string;
  annotations: Record<string, string>;
  bindings: Binding[];
}

interface Worker {
  /** The oldest comes first. */
  versions: Version[];
  /** The share of the traffic in percent, by version; the newest deployment comes first. */
  deployments: Record<string, number>[];
  crons: string[];
  /** Whether it, and each of its versions, has an address under workers.dev. */
  subdomain: Subdomain;
}

interface Subdomain {
  enabled: boolean;
  previews_enabled: boolean;
}

/** An error in the form of Cloudflare's API. */
class Refusal extends Error {
  readonly status: number;
  readonly code: number;

  constructor(status: number, code: number, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** A request of wrangler's, as a handler sees it. */
interface Call {
  query: URLSearchParams;
  /** The parsed body; that of a form is its part `metadata`. */
  // biome-ignore lint/suspicious/noExplicitAny: each handler knows the form of its body
  body: any;
}

/** An account of Cloudflare, and the API that serves it. */
export interface Cloudflare {
  url: string;
  /** The environment in which wrangler finds the account. */
  env: Record<string, string>;
  /** The accounts that the token has access to; the first one is served. */
  accounts: { id: string; name: string }[];
  databases: Database[];
  queues: Queue[];
  workers: Map<string, Worker>;
  /** What changed the account, such as "POST /queues". */
  changes: string[];
  /** Makes the API fail with 503 for the changes that this matches, such as /^POST .queues/. */
  outage: RegExp | null;
  /** How many changes that `outage` matches succeed before it begins. */
  outageAfter: number;
  /** Makes the API never answer the calls that this matches. */
  silence: RegExp | null;
  addDatabase(name: string, jurisdiction: string | null): Database;
  addQueue(name: string, jurisdiction: string | null): Queue;
  /** Adds a Worker without versions. */
  addWorker(name: string): Worker;
  close(): Promise<void>;
}

/** Starts an empty account. */
export async function startCloudflare(): Promise<Cloudflare> {
  const account: Omit<Cloudflare, "url" | "env" | "close"> = {
    accounts: [{ id: ACCOUNT_ID, name: "Account" }],
    databases: [],
    queues: [],
    workers: new Map(),
    changes: [],
    outage: null,
    outageAfter: 0,
    silence: null,
    addDatabase(name, jurisdiction) {
      const content = new DatabaseSync(":memory:");
      const database = { uuid: randomUUID(), name, jurisdiction, content };
      account.databases.push(database);
      return database;
    },
    addQueue(name, jurisdiction) {
      const queue: Queue = {
        queue_id: randomUUID().replaceAll("-", ""),
        queue_name: name,
        ...(jurisdiction && { jurisdiction }),
        settings: { delivery_delay: 0, message_retention_period: 345_600 },
        producers: [],
        consumers: [],
      };
      account.queues.push(queue);
      return queue;
    },
    addWorker(name) {
      const subdomain = { enabled: true, previews_enabled: true };
      const worker: Worker = { versions: [], deployments: [], crons: [], subdomain };
      account.workers.set(name, worker);
      return worker;
    },
  };
  const routes = routesOf(account);

  async function answer(request: IncomingMessage, response: ServerResponse) {
    const { pathname, searchParams: query } = new URL(request.url ?? "/", "http://api");
    const path = pathname.replace(`/accounts/${ACCOUNT_ID}`, "");
    const call = `${request.method} ${path}`;
    const body = parseBody(request, await buffer(request));
    const send = (status: number, answer: object) => {
      response.writeHead(status, { "Content-Type": "application/json" });
      response.end(JSON.stringify({ messages: [], errors: [], result: null, ...answer }));
    };
    try {
      if (request.headers.authorization !== `Bearer ${TOKEN}`)
        throw new Refusal(401, 10000, "Authentication error");
      if (account.outage?.test(call) && account.outageAfter-- <= 0)
        throw new Refusal(503, 10013, "Service unavailable");
      if (account.silence?.test(call)) return;
      for (const [pattern, handle] of routes) {
        const match = new RegExp(`^${pattern}$`).exec(call);
        if (!match) continue;
        const result = await handle(
          { query, body: await body },
          ...match.slice(1).map(decodeURIComponent),
        );
        if (request.method !== "GET" && !path.endsWith("/query")) account.changes.push(call);
        return send(200, { success: true, result });
      }
      throw new Refusal(400, 7003, `The stand-in does not know ${call}`);
    } catch (error) {
      const { status = 500, code = 10013, message } = error as Partial<Refusal>;
      send(status, { success: false, errors: [{ code, message }] });
    }
  }

  const { url, close } = await serve(answer);
  const env = {
    CLOUDFLARE_API_BASE_URL: url,
    CLOUDFLARE_API_TOKEN: TOKEN,
    CLOUDFLARE_ACCOUNT_ID: ACCOUNT_ID,
  };
  return Object.assign(account, { url, env, close });
}

async function parseBody({ headers }: IncomingMessage, body: Buffer): Promise<unknown> {
  const type = headers["content-type"] ?? "";
  if (!type.startsWith("multipart/")) return body.length > 0 ? JSON.parse(body.toString()) : null;
  const form = await new Response(new Uint8Array(body), {
    headers: { "Content-Type": type },
  }).formData();
  return JSON.parse(String(form.get("metadata")));
}

type Route = [pattern: string, handle: (call: Call, ...names: string[]) => unknown];

function routesOf(account: Omit<Cloudflare, "url" | "env" | "close">): Route[] {
  const databaseOf = (name = "") =>
    account.databases.find((each) => each.uuid === name || each.name === name) ??
    refuse(404, 7404, `The database ${name} could not be found`);
  const queueOf = (id = "") =>
    account.queues.find((each) => each.queue_id === id) ?? refuse(404, 11000, "queue not found");
  const workerOf = (name = "") =>
    account.workers.get(name) ?? refuse(404, 10007, "This Worker does not exist on your account.");
  const lastOf = (name = "") => workerOf(name).versions.at(-1);

  /** Adds a version, which inherits the secrets of the one before. */
  function addVersion(name: string, metadata: Metadata): Version {
    const former = account.workers.get(name)?.versions.at(-1)?.bindings ?? [];
    const bindings = metadata.bindings.map((binding) =>
      binding.type === "inherit"
        ? (former.find((each) => each.name === binding.name) ??
          refuse(400, 10057, `inherit binding '${binding.name}' is invalid: no such binding`))
        : binding,
    );
    const kept = former.filter(
      ({ type, name }) => type === "secret_text" && !bindings.some((each) => each.name === name),
    );
    for (const { type, id, queue_name } of bindings) {
      if (type === "d1") databaseOf(id);
      if (type === "queue" && !account.queues.some((queue) => queue.queue_name === queue_name))
        refuse(400, 10021, `queue ${queue_name} does not exist`);
    }
    const version = {
      id: randomUUID(),
      annotations: metadata.annotations ?? {},
      bindings: [...bindings, ...kept],
    };
    const worker = account.workers.get(name) ?? account.addWorker(name);
    worker.versions.push(version);
    return version;
  }

  return [
    ["GET /user/tokens/verify", () => ({ id: "t1", status: "active" })],
    ["GET /user", () => refuse(403, 9109, "Unauthorized to access requested resource")],
    ["GET /accounts", () => account.accounts],
    ["GET /memberships", () => account.accounts.map((each) => ({ account: each }))],

    ["GET /d1/database", ({ query }) => pageOf(query, account.databases.map(shownDatabase))],
    ["GET /d1/database/([^/]+)", (_, name) => shownDatabase(databaseOf(name))],
    [
      "POST /d1/database",
      ({ body: { name, jurisdiction = null } }) => {
        if (account.databases.some((each) => each.name === name))
          refuse(400, 7502, "A database with that name already exists");
        return shownDatabase(account.addDatabase(name, jurisdiction));
      },
    ],
    ["POST /d1/database/([^/]+)/query", ({ body }, name) => execute(databaseOf(name), body.sql)],
    [
      "GET /d1/database/([^/]+)/time_travel/bookmark",
      ({ query }) => ({ bookmark: query.has("timestamp") ? `at-${query.get("timestamp")}` : NOW }),
    ],
    [
      "POST /d1/database/([^/]+)/time_travel/restore",
      async ({ query }, name) => {
        const bookmark = query.get("bookmark") ?? refuse(400, 7500, "no bookmark");
        const { restore = () => refuse(400, 7500, "no time travel") } = databaseOf(name);
        await restore(bookmark);
        return { bookmark, previous_bookmark: NOW, message: "restored" };
      },
    ],

    [
      "GET /queues",
      ({ query }) => {
        const names = query.getAll("name");
        return account.queues
          .filter(({ queue_name }) => names.length === 0 || names.includes(queue_name))
          .map(shownQueue);
      },
    ],
    [
      "POST /queues",
      ({ body: { queue_name, jurisdiction = null } }) =>
        shownQueue(account.addQueue(queue_name, jurisdiction)),
    ],
    [
      "PATCH /queues/([^/]+)",
      ({ body }, id) => {
        Object.assign(queueOf(id).settings, body.settings);
        return shownQueue(queueOf(id));
      },
    ],
    ["GET /queues/([^/]+)", (_, id) => shownQueue(queueOf(id))],
    ["GET /queues/([^/]+)/consumers", (_, id) => queueOf(id).consumers],
    [
      "POST /queues/([^/]+)/consumers",
      ({ body }, id) => {
        const consumer = { consumer_id: randomUUID(), ...body, script: body.script_name };
        queueOf(id).consumers.push(consumer);
        return consumer;
      },
    ],
    ["PUT /queues/([^/]+)/consumers/([^/]+)", () => ({})],

    [
      "GET /workers/services/([^/]+)",
      (_, name) => {
        const script = { id: name, tags: [], tag: "t", last_deployed_from: "wrangler" };
        workerOf(name);
        return { default_environment: { environment: "production", script } };
      },
    ],
    [
      "GET /workers/scripts/([^/]+)/secrets",
      (_, name) =>
        (lastOf(name)?.bindings ?? []).flatMap(({ name, type }) =>
          type === "secret_text" ? [{ name, type }] : [],
        ),
    ],
    [
      "GET /workers/scripts/([^/]+)/settings",
      (_, name) => ({ bindings: lastOf(name)?.bindings ?? [] }),
    ],
    ["PATCH /workers/scripts/([^/]+)/script-settings", () => ({})],
    ["POST /workers/scripts/([^/]+)/assets-upload-session", () => ({ jwt: "jwt", buckets: [] })],
    [
      "PUT /workers/scripts/([^/]+)",
      ({ body }, name = "") => {
        const { id } = addVersion(name, body);
        workerOf(name).deployments.unshift({ [id]: 100 });
        return { id: name, tag: "t", deployment_id: id.replaceAll("-", ""), startup_time_ms: 1 };
      },
    ],
    [
      "POST /workers/scripts/([^/]+)/versions",
      ({ body }, name = "") => {
        workerOf(name);
        return { ...shownVersion(addVersion(name, body)), startup_time_ms: 1 };
      },
    ],
    [
      "GET /workers/scripts/([^/]+)/versions",
      (_, name) => ({ items: workerOf(name).versions.map(shownVersion) }),
    ],
    [
      "GET /workers/scripts/([^/]+)/versions/([^/]+)",
      (_, name, id) => {
        const version = workerOf(name).versions.find((each) => each.id === id);
        return version ? shownVersion(version) : refuse(404, 10094, "version not found");
      },
    ],
    [
      "GET /workers/scripts/([^/]+)/deployments",
      (_, name) => ({ deployments: workerOf(name).deployments.map(shownDeployment) }),
    ],
    [
      "POST /workers/scripts/([^/]+)/deployments",
      ({ body }, name) => {
        const shares = (body.versions as Share[]).map(
          ({ version_id, percentage }) => [version_id, percentage] as const,
        );
        workerOf(name).deployments.unshift(Object.fromEntries(shares));
        return { id: randomUUID() };
      },
    ],
    [
      "(GET|PUT) /workers/scripts/([^/]+)/schedules",
      ({ body }, method, name) => {
        const worker = workerOf(name);
        if (method === "PUT") worker.crons = (body as { cron: string }[]).map(({ cron }) => cron);
        return { schedules: worker.crons.map((cron) => ({ cron })) };
      },
    ],
    [
      "(?:GET|POST) /workers/scripts/([^/]+)/subdomain",
      ({ body }, name) => Object.assign(workerOf(name).subdomain, body),
    ],
    ["GET /workers/workers/([^/]+)", (_, name) => ({ subdomain: workerOf(name).subdomain })],
    // Too long for a DNS label: no test asks a real server.
    ["GET /workers/subdomain", () => ({ subdomain: `account-${"x".repeat(60)}` })],
    ["GET /workers/services/([^/]+)/environments/([^/]+)/routes", () => []],
  ];
}

interface Metadata {
  bindings: Binding[];
  annotations?: Record<string, string>;
}

interface Share {
  version_id: string;
  percentage: number;
}

function refuse(status: number, code: number, message: string): never {
  throw new Refusal(status, code, message);
}

function pageOf<T>(query: URLSearchParams, items: T[]): T[] {
  const size = Number(query.get("per_page") ?? 10);
  const page = Number(query.get("page") ?? 1);
  return items.slice((page - 1) * size, page * size);
}

/** The fields of a database that wrangler reads. */
function shownDatabase({ uuid, name, jurisdiction }: Database) {
  return { uuid, name, jurisdiction, version: "production", created_at: new Date(0) };
}

function shownQueue(queue: Queue) {
  const times = { created_on: new Date(0), modified_on: new Date(0) };
  const { producers, consumers } = queue;
  const counts = {
    producers_total_count: producers.length,
    consumers_total_count: consumers.length,
  };
  return { ...queue, ...times, ...counts };
}

function shownVersion({ id, annotations, bindings }: Version) {
  const metadata = { created_on: new Date(0), source: "wrangler", author_email: "ops@example.com" };
  return {
    id,
    number: 1,
    annotations,
    metadata,
    resources: { bindings, script: { etag: "e" }, script_runtime: {} },
  };
}

function shownDeployment(shares: Record<string, number>) {
  const versions = Object.entries(shares).map(([version_id, percentage]) => ({
    version_id,
    percentage,
  }));
  const author = { author_email: "ops@example.com", source: "wrangler" };
  return { id: randomUUID(), ...author, strategy: "percentage", created_on: new Date(0), versions };
}

/** Runs the statements of a query in one transaction, as D1 does. */
async function execute({ content, query }: Database, sql: string) {
  if (query) {
    const each = await query(sql).catch((error: Error) => refuse(400, 7500, error.message));
    return each.map((results) => ({ success: true, results, meta: { duration: 0 } }));
  }
  content.exec("BEGIN");
  try {
    const results = /^\s*(SELECT|WITH)\b/i.test(sql)
      ? content.prepare(sql).all()
      : content.exec(sql);
    content.exec("COMMIT");
    return [{ success: true, results: results ?? [], meta: { duration: 0 } }];
  } catch (error) {
    content.exec("ROLLBACK");
    return refuse(400, 7500, `${(error as Error).message}: SQLITE_ERROR`);
  }
}

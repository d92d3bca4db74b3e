import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, expect, test } from "vitest";
import { startRuntime } from "../../../scripts/shared/runtime.ts";
import { opened } from "../../node/support/opened.ts";
import { startReceiver } from "../../node/support/receiver.ts";
import { numbered, openWorkspace } from "../../node/support/workspace.ts";
import { until } from "../../support/until.ts";

const folder = mkdtempSync(join(tmpdir(), "erasure-"));
afterAll(() => rmSync(folder, { recursive: true }));
const runtime = await startRuntime({ persist: folder, databases: 2 });
const receiver = await opened(
  startReceiver(({ body }) => (body.includes(`Larrieu-lead-${LEADS - 1}-`) ? 500 : 204)),
);

function files(): string[] {
  const names = readdirSync(folder, { recursive: true, encoding: "utf8" });
  return names.filter((name) => statSync(join(folder, name)).isFile());
}

/**
 * The storage files that contain one of the texts, byte for byte, once everything committed has
 * been moved from the write-ahead log into the database, as the database does in time.
 */
function filesWith(texts: string[]): string[] {
  for (const name of files().filter((file) => file.endsWith(".sqlite"))) {
    using db = new DatabaseSync(join(folder, name));
    db.exec("PRAGMA wal_checkpoint(TRUNCATE)");
  }
  return files().flatMap((name) => {
    const bytes = readFileSync(join(folder, name));
    const found = texts.filter((text) => bytes.includes(text));
    return found.length > 0 ? [`${name}: ${found.length} of ${texts.length}`] : [];
  });
}

/**
 * The number of rows in the tables that could mention a lead; of attempts, of which there may be more
 * meanwhile, that of their events.
 */
async function rowsOf(tables: string[]): Promise<number[]> {
  const counts = tables.map((table) => {
    const what = table === "attempts" ? "DISTINCT event_id" : "*";
    return runtime.env.DB.prepare(`SELECT count(${what}) AS n FROM ${table}`).first<number>("n");
  });
  return (await Promise.all(counts)).map(Number);
}

/** So many that the database moves rows between pages, which leaves copies of them in the file. */
const LEADS = 300;

const REFERENCES = numbered(LEADS, 0).map((n) => `lead-${n}`);

const personOf = (reference: string) => ({
  name: `Zoé Larrieu-${reference}-Quint`,
  email: `zoe.${reference}.lq@example.com`,
  phone: `+33-6-${reference}-44-55`,
});

/** A workspace with leads, some with delivered and some with pending deliveries. */
async function fill() {
  const { PLATFORM } = runtime.env;
  const adminEmails = ["admin@example.com"];
  const workspace = await openWorkspace(runtime, { adminEmails, database: "DB" });
  const { workspaceId } = workspace;
  await workspace.subscribe(receiver.url);
  const ids = await workspace.recordLeads(REFERENCES, (reference) => {
    const person = personOf(reference);
    const long = "x".repeat((Number(reference.slice(5)) % 7) * 500);
    return { ...person, customFields: { note: `écrire à ${person.email}`, long } };
  });
  await until(async () => (await PLATFORM.ledger({ workspaceId })).delivered === LEADS - 1);
  await until(async () => (await rowsOf(["attempts"]))[0] === 1);
  await runtime.scheduled();
  const texts = REFERENCES.flatMap((reference) => Object.values(personOf(reference)));
  return { workspaceId, ids, texts };
}

test("of erased leads, the databases' files contain no byte of a name, e-mail or phone number, even after a move", async () => {
  const { workspaceId, ids, texts } = await fill();
  const { DB, PLATFORM } = runtime.env;
  const tables = ["leads", "events", "deliveries", "attempts"];
  for (const [i, rows] of (await rowsOf(tables)).entries())
    expect(rows, tables[i]).toBeGreaterThan(0);
  const erase = (from: number) =>
    PLATFORM.eraseLeads({ workspaceId, ids: ids.slice(from, from + 100) });
  await erase(0);
  await runtime.scheduled();
  const left = LEADS - 100;
  // The last lead was kept, and failed.
  expect(await rowsOf(tables)).toEqual([left, left, left, 1]);

  await until(async () => (await PLATFORM.moveWorkspace({ workspaceId, database: "DB_2" })).done);
  // What it left behind is deleted a minute later.
  await DB.prepare("UPDATE moves SET since = 0").run();
  await runtime.scheduled();
  await erase(100);
  await runtime.scheduled();
  await runtime.stop();
  // The databases, and the gates' storage, which contains the key's status.
  const storage = files().filter((name) => name.endsWith(".sqlite"));
  for (const part of ["D1DatabaseObject", "KeyGate"]) expect(storage.join()).toContain(part);
  expect(filesWith(texts)).toEqual([]);
  // The search works: it finds what is in the clear in the workspace's database. The former one may have overwritten it.
  const clear = ["lead-299", "admin@example.com"];
  expect(filesWith(clear)).toContainEqual(expect.stringMatching(/D1DatabaseObject.*: 2 of 2$/));
});

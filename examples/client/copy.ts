import { existsSync, readFileSync, renameSync, statSync, writeFileSync } from "node:fs";
import type { Automation, Lead, Run } from "./client.js";
import type { WebhookDelivery } from "./webhooks.js";

/**
 * A copy of a workspace, in memory and in a JSON file. It stands for your database: a table per kind,
 * with `id` as its key.
 */
export class Copy {
  readonly automations = new Records<Automation>();
  readonly leads = new Records<Lead>();
  readonly runs = new Records<Run>();
  readonly #file: string;

  /** @param file is read if it exists. */
  constructor(file: string) {
    this.#file = file;
    if (!existsSync(file)) return;
    const stored = JSON.parse(readFileSync(file, "utf8"));
    // No record in the file arrived later. Those of the last minute may not be listed yet.
    const savedAt = statSync(file).mtimeMs;
    for (const kind of ["automations", "leads", "runs"] as const)
      for (const record of stored[kind]) this[kind].put(record, savedAt);
  }

  /** Applies an event and saves. Repeated and late events change nothing. */
  apply(event: WebhookDelivery): void {
    if (event.type === "automation.status_changed") this.automations.put(event.data);
    if (event.type === "lead.created") this.leads.put(event.data);
    if (event.type === "run.completed") this.runs.put(event.data);
    this.save();
  }

  /** Writes the file, readable only by this user: it contains personal data. */
  save(): void {
    const { automations, leads, runs } = this;
    writeFileSync(`${this.#file}.new`, JSON.stringify({ automations, leads, runs }), {
      mode: 0o600,
    });
    renameSync(`${this.#file}.new`, this.#file);
  }
}

/** How long a list may lag behind an event, with a generous margin. */
const LIST_LAG_MS = 60_000;

/** Records of one kind, by id. */
class Records<T extends { id: string; updated_at?: string }> {
  readonly #byId = new Map<string, T>();
  /** When each record arrived last, in Unix milliseconds. */
  readonly #arrivedAt = new Map<string, number>();
  /** What a walk began with, and has not come across since. */
  #unseen = new Set<string>();

  /** Of two states of a record, keeps the later one. Leads and runs have only one. */
  put(record: T, arrivedAt = Date.now()): void {
    this.#unseen.delete(record.id);
    this.#arrivedAt.set(record.id, arrivedAt);
    const known = this.#byId.get(record.id);
    if (timeOf(known) <= timeOf(record)) this.#byId.set(record.id, record);
  }

  /**
   * Puts what a whole walk lists, and removes what was here before it and is not listed: no event
   * announces that. What arrives during the walk stays, and so does what arrived in the minute before it, because the
   * list may not show it yet.
   *
   * @returns what changed, in words.
   */
  async replace(listed: AsyncIterable<T>): Promise<string> {
    const before = this.#byId.size;
    const shownBy = Date.now() - LIST_LAG_MS;
    const isShown = (id: string) => (this.#arrivedAt.get(id) ?? 0) < shownBy;
    this.#unseen = new Set([...this.#byId.keys()].filter(isShown));
    for await (const record of listed) this.put(record);
    const gone = this.#unseen;
    for (const id of gone) {
      this.#byId.delete(id);
      this.#arrivedAt.delete(id);
    }
    const added = this.#byId.size - before + gone.size;
    return `${this.#byId.size} (${added} new, ${gone.size} gone)`;
  }

  toJSON(): T[] {
    return [...this.#byId.values()];
  }
}

function timeOf(record: { updated_at?: string } | undefined): number {
  return Date.parse(record?.updated_at ?? "1970-01-01T00:00:00Z");
}

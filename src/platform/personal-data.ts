import { z } from "@hono/zod-openapi";
import { LeadId, several, WorkspaceId } from "../contract/fields.ts";
import { derivedId, isId } from "../contract/ids.ts";
import { InputError } from "../contract/input.ts";
import { ERASED_LEADS_KEPT_DAYS } from "../contract/limits.ts";
import { Budget } from "../db/budget.ts";
import { combine, commit, query } from "../db/client.ts";
import { DIRECTORY, openDirectory } from "../db/databases.ts";
import {
  beginErasure,
  closeKeys,
  closeWorkspace,
  eraseAllRows,
  GATES_AT_ONCE,
  noteInvalidated,
} from "../lifecycle/erase.ts";
import { eraseLeadRows } from "../lifecycle/erase-leads.ts";
import { type ExportItem, exportPage } from "../lifecycle/export.ts";
import { Reference, text } from "../primitives/text.ts";
import { invalidateKey } from "../rate-limit/gates.ts";
import { FoundLead, findPerson, SEARCHED_MAX } from "../records/finding.ts";
import { selectLeads } from "../records/leads.ts";
import { clearChanges } from "../workspaces/audit-trail.ts";
import {
  allPlacements,
  findDatabaseName,
  findPlacement,
  queryIfReachable,
} from "../workspaces/placement.ts";
import { EXPORT_KINDS } from "../workspaces/table-registry.ts";
import { cursorOf, pageOf, toPage } from "./fields.ts";
import { operation } from "./operation.ts";
import { expectDatabase, expectWorkspace } from "./placements.ts";

/** Maximum duration of one call that erases a workspace. */
const ERASURE_MAX_MS = 10_000;

const workspaceId = "wks_…";

export const findLeads = operation({
  about: `Finds the leads of a person. By e-mail address or phone number, a call decrypts up to ${SEARCHED_MAX} leads, newest first, so a page may be empty and still have a next one. Custom fields are not searched.`,
  input: z
    .strictObject({
      workspaceId: WorkspaceId,
      email: text(1_000).min(1).nullish().describe("upper and lower case are the same"),
      phone: text(100)
        .regex(/\d/, "must have a digit")
        .nullish()
        .describe("in any spelling, with or without country code"),
      reference: Reference.nullish().describe("your own id of the lead, found directly"),
      cursor: cursorOf("found_leads"),
    })
    .refine(
      ({ email, phone, reference }) =>
        [email, phone, reference].filter((one) => one != null).length === 1,
      "expected one of email, phone and reference",
    ),
  output: pageOf(FoundLead).extend({
    unreadable: z
      .array(z.string())
      .describe("ids of leads that no key decrypts, which may be theirs"),
  }),
  examples: [
    { workspaceId, email: "camille.durand@example.com" },
    { workspaceId, phone: "+33600000000" },
  ],
  async run({ env }, { workspaceId, cursor, ...wanted }) {
    const { db } = await expectWorkspace(env, workspaceId);
    const found = await findPerson(db, env.ENCRYPTION_KEYS, workspaceId, wanted, cursor ?? null);
    return { ...toPage("found_leads", found), unreadable: found.unreadable };
  },
});

export const eraseLeads = operation({
  about: `Erases leads with their events and deliveries; their runs lose the link. For ${ERASED_LEADS_KEPT_DAYS} days, the same references are not recorded again, whether they were stored or not.`,
  input: z
    .strictObject({
      workspaceId: WorkspaceId,
      ids: several(LeadId).nullish().describe("lea_…"),
      references: several(Reference).nullish().describe("your own ids"),
    })
    .refine(
      ({ ids, references }) => ids != null || references != null,
      "expected ids, references or both",
    ),
  output: z.object({
    erased: z.int(),
    missing: z.array(z.string()).describe("the ids and references that were not stored"),
  }),
  examples: [
    { workspaceId, ids: ["lea_…"] },
    { workspaceId, references: ["crm-1"] },
  ],
  async run({ env, note }, { workspaceId, ids, references }) {
    const { db } = await expectWorkspace(env, workspaceId);
    const derived = (references ?? []).map(
      async (reference) => [await derivedId("lead", workspaceId, reference), reference] as const,
    );
    const named = new Map([
      ...(ids ?? []).map((id) => [id, id] as const),
      ...(await Promise.all(derived)),
    ]);
    const leads = [...named.keys()].filter((id) => isId("lead", id));
    note?.(...leads);
    // The leads are read before the erasure. It is retried, and a second try would find none of them.
    const stored = await query(db, selectLeads(workspaceId, leads));
    await commit(db, eraseLeadRows(workspaceId, leads, Date.now()));
    const found = new Set(stored.map(({ id }) => id));
    const missing = [...named].flatMap(([id, name]) => (found.has(id) ? [] : name));
    return { erased: found.size, missing };
  },
});

export const eraseWorkspace = operation({
  about:
    "Erases a workspace and everything in it, starting with its keys. Call it until it is done, as the command in a terminal does. An unknown id is not an error, but is looked for in all databases.",
  input: z.strictObject({ workspaceId: WorkspaceId }),
  output: z.object({ done: z.boolean().describe("nothing is left") }),
  examples: [{ workspaceId }],
  async run(call, { workspaceId }) {
    const budget = new Budget(ERASURE_MAX_MS);
    const hasMore = () => budget.hasMore();
    const env = budget.meter(call.env);
    const now = Date.now();
    const { db } = await findPlacement(env, workspaceId);
    if (await commit(db, beginErasure(workspaceId)))
      throw new InputError("workspaceId", "it is being moved; erase it when that is done");
    const closed = await commit(openDirectory(env), closeKeys(workspaceId, now));
    await Promise.all(closed.keys.map((key) => invalidateKey(env, key)));
    await commit(openDirectory(env), { noted: noteInvalidated(closed.keys) });
    if (closed.keys.length === GATES_AT_ONCE) return { done: false };
    // If its database is no longer bound, the workspace would look erased.
    if (closed.database !== null) expectDatabase(env, closed.database);
    await commit(db, closeWorkspace(workspaceId, now));
    while ((await commit(openDirectory(env), clearChanges(workspaceId))) > 0)
      if (!hasMore()) return { done: false };
    let done = true;
    // The directory comes last, because it points to the rows that are left.
    for (const placement of allPlacements(env).reverse()) {
      // A workspace that the directory does not know may have rows anywhere.
      const isNeeded =
        closed.database === null || [closed.database, DIRECTORY].includes(placement.database);
      // Another database may have rows that a move has left. If it does not respond now, the scheduled job deletes
      // them later.
      const hasRows =
        isNeeded ||
        (await queryIfReachable(env, placement.database, (other) =>
          findDatabaseName(other, workspaceId),
        ));
      if (!hasRows || !done) continue;
      if (closed.database === null)
        await commit(
          placement.db,
          combine([beginErasure(workspaceId), closeWorkspace(workspaceId, now)]),
        );
      done = await eraseAllRows(placement.db, workspaceId, hasMore);
    }
    return { done };
  },
});

export const exportWorkspace = operation({
  about:
    "Exports everything stored about a workspace when the first call began, page by page, with personal data in plain text. Secrets, hashes of keys and stored responses of endpoints are left out. So is the body of an event with a `leadId`, which is made from that lead. A lead that no key decrypts is marked `unreadable`.",
  input: z.strictObject({
    workspaceId: WorkspaceId,
    cursor: z
      .string()
      .nullish()
      .describe("the previous page's nextCursor; default: the first page"),
  }),
  output: z.object({
    items: z.array(
      z.looseObject({ kind: z.enum(EXPORT_KINDS) }) as unknown as z.ZodType<ExportItem>,
    ),
    nextCursor: z.string().nullable(),
  }),
  examples: [{ workspaceId }],
  async run({ env }, { workspaceId, cursor }) {
    const { db } = await expectWorkspace(env, workspaceId);
    const keys = env.ENCRYPTION_KEYS;
    return exportPage(db, openDirectory(env), keys, workspaceId, cursor ?? null);
  },
});

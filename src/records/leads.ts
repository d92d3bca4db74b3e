import { z } from "@hono/zod-openapi";
import { and, eq, type SQL, sql } from "drizzle-orm";
import { LeadSource } from "../contract/enumerations.ts";
import { idField, timeField } from "../contract/fields.ts";
import { isoTime } from "../contract/time.ts";
import { each, fromJson, insertFrom, list, qb, toJsonValue } from "../db/builder.ts";
import {
  counted,
  type Database,
  inOrder,
  jsonParameters,
  prepared,
  rows,
  type Statements,
} from "../db/client.ts";
import {
  byCreation,
  ifSmall,
  isBehind,
  isNamed,
  type Listing,
  listPage,
  NAMED,
  newestFirst,
  type PageRequest,
  ROWS,
  readLargeParts,
} from "../db/page.ts";
import { leads } from "../db/schema.ts";
import {
  knownDataKey,
  openDataKey,
  openPersonalData,
  type PersonalData,
} from "../encryption/personal-data.ts";
import { dataKeyOf } from "../workspaces/data-keys.ts";

/** A lead as stored, with `sealed` in hexadecimal. */
export type LeadRow = Omit<typeof leads.$inferSelect, "workspaceId" | "reference" | "eventId">;

const SHOWN = {
  id: leads.id,
  source: leads.source,
  agentId: leads.agentId,
  sealed: toJsonValue(leads.sealed) as SQL<string | null>,
  name: leads.name,
  email: leads.email,
  phone: leads.phone,
  customFields: leads.customFields,
  createdAt: leads.createdAt,
};

/** Its size in the query's result, where what is encrypted is in hexadecimal. */
const SIZE = sql<number>`(2 * coalesce(octet_length(${leads.sealed}), 0) + octet_length(${leads.customFields}))`;

const page = prepared(
  qb
    .select({
      ...SHOWN,
      sealed: ifSmall<string | null>(SIZE, SHOWN.sealed),
      customFields: ifSmall<LeadRow["customFields"]>(SIZE, leads.customFields).mapWith(
        leads.customFields,
      ),
      size: SIZE,
      dataKey: sql<
        string | null
      >`CASE WHEN ${sql.placeholder("isKeyNeeded")} THEN ${dataKeyOf(sql.placeholder("workspaceId"))} END`,
    })
    .from(leads)
    .where(
      and(
        eq(leads.workspaceId, sql.placeholder("workspaceId")),
        isBehind(leads.createdAt, leads.id),
      ),
    )
    .orderBy(...newestFirst(leads.createdAt, leads.id))
    .limit(ROWS),
);

const whole = prepared(
  qb
    .select(SHOWN)
    .from(NAMED)
    .crossJoin(leads)
    .where(and(isNamed(leads.id), eq(leads.workspaceId, sql.placeholder("workspaceId")))),
);

/**
 * One page of the workspace's leads, newest first.
 *
 * @param keys `ENCRYPTION_KEYS`.
 * @throws Error if a lead cannot be decrypted.
 */
export async function listLeads(
  db: Database,
  keys: string,
  workspaceId: string,
  request: PageRequest,
): Promise<Listing<Lead>> {
  const known = knownDataKey(workspaceId);
  const values = { workspaceId, isKeyNeeded: known ? 0 : 1 };
  const small = await listPage(db, page, values, request, byCreation, (row) => row);
  const found = await readLargeParts(db, whole, values, small, request.limit);
  const dataKey = known ?? (await openDataKey(keys, workspaceId, found.items[0]?.dataKey ?? null));
  const items = await Promise.all(found.items.map((row) => readLead(dataKey, row)));
  return { items, next: found.next };
}

const INSERTED = [
  "id",
  "reference",
  "source",
  "agentId",
  "sealed",
  "createdAt",
  "eventId",
] as const satisfies (keyof typeof leads.$inferSelect)[];

/** A lead to insert, its personal data encrypted; `eventId` is the event that announces it. */
export type NewLead = Pick<typeof leads.$inferSelect, (typeof INSERTED)[number]>;

/** Inserts leads; those already stored stay unchanged. */
export function insertLeads(workspaceId: string, recorded: NewLead[]): Statements<number[]> {
  return inOrder(
    jsonParameters(recorded).map((chunk) =>
      counted(
        insertFrom(
          leads,
          {
            ...each(leads, INSERTED, fromJson("r")),
            workspaceId,
            customFields: sql`'{}'`,
          },
          sql`FROM json_each(${chunk}) AS r WHERE true ON CONFLICT (id) DO NOTHING`,
        ),
      ),
    ),
  );
}

/** The leads among those named that exist in the named workspace. */
export function findLeads(named: { workspaceId: string; id: string }[]) {
  return rows(
    qb
      .select({ workspaceId: leads.workspaceId, id: leads.id })
      .from(sql`json_each(${JSON.stringify(named)}) AS named`)
      .innerJoin(
        leads,
        sql`${leads.id} = named.value->>'id' AND ${leads.workspaceId} = named.value->>'workspaceId'`,
      ),
  );
}

/** SQL expression: a lead's row as JSON, for `parseLeadRow`. */
export const LEAD_AS_JSON = sql<string>`json_object(${list(
  Object.entries(SHOWN).flatMap(([name, column]) => [sql.raw(`'${name}'`), column]),
)})`;

/** Parses the JSON that `LEAD_AS_JSON` returns. */
export function parseLeadRow(json: string): LeadRow {
  const row = JSON.parse(json);
  return { ...row, customFields: JSON.parse(row.customFields) };
}

/**
 * The personal data of a lead, whether it is stored encrypted or in the clear.
 *
 * @param dataKey its workspace's; null if it has none.
 * @throws Error if it cannot be decrypted.
 */
export async function readPersonalData(
  dataKey: CryptoKey | null,
  lead: PersonalData & { id: string; sealed: string | null },
): Promise<PersonalData> {
  if (lead.sealed === null) return lead;
  if (!dataKey) throw new Error(`the workspace of ${lead.id} has no data key`);
  return openPersonalData(dataKey, lead.id, lead.sealed);
}

/** The public shape of a lead. */
export const Lead = z
  .object({
    id: idField("lead", "Identifies the lead."),
    source: LeadSource,
    agent_id: idField("agent", "The agent that captured the lead."),
    name: z.string().nullable().openapi({
      description: "The person's name; null if unknown.",
      example: "Camille Durand",
    }),
    email: z.string().nullable().openapi({
      description: "The person's e-mail address; null if unknown.",
      example: "camille.durand@example.com",
    }),
    phone: z.string().nullable().openapi({
      description: "The person's phone number, as the source provided it; null if unknown.",
      example: "+33600000000",
    }),
    custom_fields: z.record(z.string(), z.unknown()).openapi({
      description:
        "Other data from the lead's source, such as form answers. The source determines the keys and value types.",
      example: { budget: "10 000 – 15 000 €", visite_souhaitee: true },
    }),
    created_at: timeField("When the lead was captured."),
  })
  .openapi("Lead", { description: "A person who showed interest, captured by an agent." });

export type Lead = z.infer<typeof Lead>;

/**
 * The public shape of a lead.
 *
 * @param dataKey its workspace's; null if it has none.
 * @throws Error if the lead cannot be decrypted.
 */
export async function readLead(dataKey: CryptoKey | null, row: LeadRow): Promise<Lead> {
  const { name, email, phone, customFields } = await readPersonalData(dataKey, row);
  return {
    id: row.id,
    source: row.source,
    agent_id: row.agentId,
    name,
    email,
    phone,
    custom_fields: customFields,
    created_at: isoTime(row.createdAt),
  };
}

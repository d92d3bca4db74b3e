import { eq } from "drizzle-orm";
import type { WebhookEvent } from "../contract/enumerations.ts";
import { InputError } from "../contract/input.ts";
import { isoTimeOrNull } from "../contract/time.ts";
import { qb } from "../db/builder.ts";
import { type Database, query } from "../db/client.ts";
import { type ChangedFields, subscriptions, workspaces } from "../db/schema.ts";
import {
  changeHeaders,
  type HeaderChanges,
  listDropped,
  openHeaders,
  sealHeaders,
} from "../endpoints/headers.ts";
import {
  type Changeable,
  isSubscription,
  SHOWN_COLUMNS,
  type ShownFields,
  unknownWebhook,
} from "./subscriptions.ts";

/* Reads and changes the fields of a subscription that people edit, and compares them for the audit trail. */

/** The fields of a subscription before a change, with the data key of its headers. */
export type Fields = Awaited<ReturnType<typeof findFields>>;

/** Reads the fields of a subscription. @throws InputError if there is no such subscription. */
export async function findFields(db: Database, webhookId: string) {
  const fields = await findFieldsIfAny(db, webhookId);
  if (!fields) throw unknownWebhook();
  return fields;
}

/** Reads the fields of a subscription; undefined if there is no such subscription. */
export async function findFieldsIfAny(db: Database, webhookId: string) {
  const found = qb
    .select({
      id: subscriptions.id,
      workspaceId: subscriptions.workspaceId,
      ...SHOWN_COLUMNS,
      sealedHeaders: subscriptions.sealedHeaders,
      sealedSecret: subscriptions.sealedSecret,
      sealedDataKey: workspaces.sealedDataKey,
    })
    .from(subscriptions)
    .innerJoin(workspaces, eq(workspaces.id, subscriptions.workspaceId))
    .where(isSubscription(webhookId));
  const [fields] = await query(db, found);
  return fields;
}

/** The changes that a call requests; an absent field stays as it is. */
interface WantedChanges extends HeaderChanges {
  /** A URI that is accepted. */
  url?: string | null | undefined;
  events?: WebhookEvent[] | null | undefined;
  description?: string | null | undefined;
}

/**
 * Computes the columns to change. The headers are dropped if the URL gets another origin. Otherwise, any user of the
 * portal could change the URL to a server of their own and read them there.
 *
 * @throws InputError if there would be too many headers.
 */
export async function changeFields(
  env: Pick<Env, "ENCRYPTION_KEYS">,
  before: Fields,
  wanted: WantedChanges,
): Promise<{ changed: Partial<Pick<Fields, Changeable>>; headersDropped: string[] }> {
  const changed: Partial<Pick<Fields, Changeable>> = {};
  if (wanted.url != null) changed.url = wanted.url;
  if (wanted.events) changed.events = [...new Set(wanted.events)];
  if (wanted.description !== undefined) changed.description = wanted.description || null;
  const isElsewhere =
    changed.url !== undefined && new URL(changed.url).origin !== new URL(before.url).origin;
  const { headers, setHeaders, removeHeaders } = wanted;
  const isHeaderChange = headers !== undefined || setHeaders != null || removeHeaders != null;
  if (!isHeaderChange && !(isElsewhere && before.headerNames.length > 0))
    return { changed, headersDropped: [] };
  const owner = { ...before, subscriptionId: before.id };
  const isKept = !isElsewhere && headers === undefined;
  // A header that cannot be decrypted can still be replaced.
  const opened = openHeaders(env, owner, before.sealedHeaders);
  const present = isKept ? await opened : await opened.catch(() => null);
  const next = changeHeaders(isKept ? (present ?? {}) : {}, wanted);
  // Encrypted again, the same headers would look like others.
  const isChanged = JSON.stringify(present) !== JSON.stringify(next);
  if (isChanged) Object.assign(changed, await sealHeaders(env, owner, next));
  return { changed, headersDropped: listDropped(before.headerNames, next, wanted) };
}

/** The values that a caller expects the fields to have. */
type Expected = { [Name in keyof ChangedFields]?: unknown };

/**
 * Compares fields with the values that a caller expects (optimistic concurrency control). So a form does not undo
 * another person's change since it was opened.
 *
 * @throws InputError that names the first field that differs.
 */
export function expectFields(before: Fields, expected: Expected): void {
  const present = showFields(before);
  for (const [name, value] of Object.entries(expected))
    if (value !== undefined && !isSame(present[name as keyof ChangedFields], value))
      throw new InputError(["expected", name], "another call has changed it", {
        reason: "changed_meanwhile",
      });
}

/** Returns the fields in the form of the audit trail, which has no values of headers. */
export function showFields(fields: ShownFields): ChangedFields {
  return {
    url: fields.url,
    events: fields.events,
    description: fields.description,
    headers: fields.headerNames,
    disabledAt: isoTimeOrNull(fields.disabledAt),
    rotatedAt: isoTimeOrNull(fields.rotatedAt),
  };
}

/** Returns the fields that differ, before and after a change. Headers differ if their values do. */
export function diffFields(
  before: Fields,
  after: Fields,
): { before: ChangedFields; after: ChangedFields } {
  const [old, next] = [showFields(before), showFields(after)];
  const areHeadersNew = before.sealedHeaders !== after.sealedHeaders;
  const names = Object.keys(old) as (keyof ChangedFields)[];
  const changed = names.filter((name) =>
    name === "headers" ? areHeadersNew : !isSame(old[name], next[name]),
  );
  const pick = (fields: ChangedFields): ChangedFields =>
    Object.fromEntries(changed.map((name) => [name, fields[name]]));
  return { before: pick(old), after: pick(next) };
}

/** Whether two values are equal; the order of a list does not matter. */
function isSame(a: unknown, b: unknown): boolean {
  const sorted = (value: unknown) =>
    JSON.stringify(Array.isArray(value) ? value.toSorted() : value);
  return sorted(a) === sorted(b);
}

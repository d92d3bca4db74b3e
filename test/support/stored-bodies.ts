import { aliasFields, qb } from "../../src/db/builder.ts";
import { events } from "../../src/db/schema.ts";
import { BODY, type BodyRow, makeBody } from "../../src/events/bodies.ts";
import { sealedDataKeyOf, type WorkspaceKey } from "../../src/workspaces/data-keys.ts";

const { workspaceId } = events;

/** The SQL that reads each event with what its body is made from. */
export const EVENTS_WITH_BODIES = qb
  .select(aliasFields({ workspaceId, sealedDataKey: sealedDataKeyOf(workspaceId), ...BODY }))
  .from(events)
  .toSQL().sql;

/** A row of it. */
export interface EventWithBody extends BodyRow, WorkspaceKey {}

/** The body of such an event. @param keys `ENCRYPTION_KEYS`. */
export function bodyOf(keys: string, event: EventWithBody): Promise<string> {
  return makeBody(keys, event, event);
}

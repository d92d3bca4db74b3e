import { dialect, select } from "../../src/db/builder.ts";
import { events } from "../../src/db/schema.ts";
import { BODY, type BodyRow } from "../../src/model/bodies.ts";

/** The SQL that reads each event with what `bodyOf` makes its body from. */
export const EVENTS_WITH_BODIES = dialect.sqlToQuery(
  select({ type: events.type, ...BODY })
    .from(events)
    .getSQL(),
).sql;

/** A row of it. */
export interface EventWithBody extends BodyRow {
  type: string;
}

import type { EventField } from "../event-fields.ts";

/** The fields of each event type, which the build takes from the OpenAPI document (site/portal.ts). */
declare const EVENT_FIELDS: Record<string, EventField[]>;

export const eventFields = EVENT_FIELDS;

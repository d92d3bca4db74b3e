import {
  AUTOMATION_STATUSES,
  AUTOMATION_TYPES,
  LEAD_SOURCES,
  RUN_STATUSES,
  SOCIAL_AUTOMATION_TYPES,
  TRIGGER_TYPES,
} from "./enumerations.ts";
import { NESTING_MAX } from "./limits.ts";
import * as z from "./zod.ts";

/** Text that every store and client can hold: no NUL, no lone surrogate. */
function text(max: number) {
  return z.string().check(z.maxLength(max), z.refine(isText, "must be well-formed text"));
}

function isText(value: string): boolean {
  return value.isWellFormed() && !value.includes("\0");
}

/** A non-empty label. */
export const Name = text(1_000).check(z.minLength(1));
const Reference = text(512).check(z.minLength(1));
/** One of our ids. */
export const Id = z.string().check(z.maxLength(100));

const FIRST_MS = Date.parse("0000-01-01T00:00:00.000Z");
const LAST_MS = Date.parse("9999-12-31T23:59:59.999Z");

/** ISO 8601 with `Z` or an offset, parsed to Unix milliseconds. */
export const Instant = z
  .pipe(
    z.iso.datetime({ offset: true }),
    z.transform((value: string) => Date.parse(value)),
  )
  .check(
    z.refine((ms) => ms >= FIRST_MS && ms <= LAST_MS, "must be in the years 0000 to 9999, in UTC"),
  );

/** What is wrong with a value, and where. */
interface Fault {
  path: (string | number)[];
  message: string;
}

/**
 * The first part of a value that a store or client could not hold unchanged; null if there is none.
 */
function findFault(value: unknown, path: Fault["path"] = []): Fault | null {
  const fault = (message: string) => ({ path, message });
  if (value === null || typeof value === "boolean") return null;
  if (typeof value === "string") return isText(value) ? null : fault("must be well-formed text");
  if (typeof value === "number" && Number.isFinite(value))
    return Number.isInteger(value) && !Number.isSafeInteger(value) ? fault(UNSAFE) : null;
  if (!Array.isArray(value) && !isPlainObject(value)) return fault("must be JSON");
  if (path.length >= NESTING_MAX) return fault(`must be nested at most ${NESTING_MAX} deep`);
  if (!Object.keys(value).every(isText)) return fault("must have names of well-formed text");
  const items = Array.isArray(value) ? value.entries() : Object.entries(value);
  for (const [key, item] of items) {
    const found = findFault(item, [...path, key]);
    if (found) return found;
  }
  return null;
}

// Larger integers were already rounded when the JSON was parsed.
const UNSAFE = `must be between ${Number.MIN_SAFE_INTEGER} and ${Number.MAX_SAFE_INTEGER}; write it as text`;

function isPlainObject(value: unknown): value is Record<string, unknown> {
  return Object.prototype.toString.call(value) === "[object Object]";
}

const CustomFields = z
  .custom<Record<string, unknown>>(isPlainObject, "must be a JSON object")
  .check(
    z.superRefine((fields, context) => {
      const fault = findFault(fields);
      if (fault) context.addIssue({ code: "custom", continue: false, ...fault });
    }),
  );

const Agent = z.strictObject({ reference: Reference, name: Name });

/** An automation as the platform reports it. */
export const AutomationReport = z
  .strictObject({
    reference: Reference,
    type: z.enum(AUTOMATION_TYPES),
    provider: Name,
    agent: Agent,
    name: z.nullish(Name),
    status: z.enum(AUTOMATION_STATUSES),
    updatedAt: z.nullish(Instant),
  })
  .check(
    z.refine(
      ({ type, name }) => SOCIAL_AUTOMATION_TYPES.some((social) => social === type) || name,
      {
        path: ["name"],
        message: "required for a crm_source automation",
      },
    ),
  );

/** A lead as the platform reports it. */
export const LeadReport = z.strictObject({
  reference: Reference,
  source: z.enum(LEAD_SOURCES),
  agent: Agent,
  name: z.nullish(text(1_000)),
  email: z.nullish(text(1_000)),
  phone: z.nullish(text(100)),
  customFields: z.nullish(CustomFields),
  createdAt: z.nullish(Instant),
});

/** A finished run as the platform reports it. */
export const RunReport = z.strictObject({
  reference: Reference,
  automationId: Id,
  status: z.enum(RUN_STATUSES),
  triggerType: z.enum(TRIGGER_TYPES),
  occurredAt: z.nullish(Instant),
  actions: z.nullish(
    z
      .array(z.strictObject({ type: z.optional(text(200)), status: z.optional(text(200)) }))
      .check(z.maxLength(100)),
  ),
  leadId: z.nullish(Id),
});

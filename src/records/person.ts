import { z } from "@hono/zod-openapi";
import { NESTING_MAX } from "../contract/limits.ts";
import { isText, text } from "../primitives/text.ts";

/*
 * To add a personal field of a lead: an entry here, its example in `src/events/samples.ts`, then `npm run openapi` and
 * `npm run reference`. `A_LEAD` in `test/contract/support.ts` names every field. If the field identifies a person, let
 * `findLeads` search it (`finding.ts`).
 */

/** A JSON object that every store and client can hold unchanged. */
const CustomFields = z
  .custom<Record<string, unknown>>(isPlainObject, "must be a JSON object")
  .superRefine((fields, context) => {
    const fault = findFault(fields);
    if (fault)
      context.addIssue({
        code: "custom",
        continue: false,
        ...fault,
        params: { reason: "invalid_type" },
      });
  });

/**
 * The personal data of a lead. This list alone decides how a field is reported, encrypted, read, shown, exported and
 * erased; no column of the database has personal data. `shownAs` is the name that clients use. `absent` is shown for a
 * field that was not reported.
 */
export const PERSONAL_FIELDS = {
  name: {
    shownAs: "name",
    reported: text(1_000).nullish(),
    shown: z.string().nullable().openapi({
      description: "The person's name; null if unknown.",
      example: "Camille Durand",
    }),
    absent: null,
  },
  email: {
    shownAs: "email",
    reported: text(1_000).nullish(),
    shown: z.string().nullable().openapi({
      description: "The person's e-mail address; null if unknown.",
      example: "camille.durand@example.com",
    }),
    absent: null,
  },
  phone: {
    shownAs: "phone",
    reported: text(100).nullish(),
    shown: z.string().nullable().openapi({
      description: "The person's phone number, as the source provided it; null if unknown.",
      example: "+33600000000",
    }),
    absent: null,
  },
  customFields: {
    shownAs: "custom_fields",
    reported: CustomFields.nullish().describe("any JSON object; clients receive it unchanged"),
    shown: z.record(z.string(), z.unknown()).openapi({
      // Without this, the OpenAPI 3.0 document would call the properties nullable, which needs a type.
      additionalProperties: {},
      // Some importers of agents reject an object without them.
      properties: {},
      description:
        "Other data from the lead's source, such as form answers. The source determines the keys and value types.",
      example: { budget: "10 000 – 15 000 €", visite_souhaitee: true },
    }),
    absent: {},
  },
} as const satisfies Record<
  string,
  { shownAs: string; reported: z.ZodType; shown: z.ZodType; absent: unknown }
>;

type Fields = typeof PERSONAL_FIELDS;

/** The fields as the platform reports them. They are encrypted in this form. */
export type ReportedPerson = { [F in keyof Fields]?: z.output<Fields[F]["reported"]> };
/** The fields with values for absent ones, by the names that the platform uses. */
export type PersonalData = { [F in keyof Fields]: z.output<Fields[F]["shown"]> };

type ShownShape = { [F in keyof Fields as Fields[F]["shownAs"]]: Fields[F]["shown"] };

const NAMES = Object.keys(PERSONAL_FIELDS) as (keyof Fields)[];

/** The schemas of the fields in a report. */
export const REPORTED_PERSON = Object.fromEntries(
  NAMES.map((name) => [name, PERSONAL_FIELDS[name].reported]),
) as { [F in keyof Fields]: Fields[F]["reported"] };

/** The schemas of the fields in a lead, by the names that clients use. */
export const SHOWN_PERSON = Object.fromEntries(
  Object.values(PERSONAL_FIELDS).map(({ shownAs, shown }) => [shownAs, shown]),
) as ShownShape;

/** The schemas of the fields in a lead, by the names that the platform uses. */
export const PERSON = Object.fromEntries(
  NAMES.map((name) => [name, PERSONAL_FIELDS[name].shown]),
) as { [F in keyof Fields]: Fields[F]["shown"] };

/** Returns all fields; one that was not reported, or did not exist then, has its value for absent ones. */
export function toPersonalData(reported: ReportedPerson): PersonalData {
  return Object.fromEntries(
    NAMES.map((name) => [name, reported[name] ?? PERSONAL_FIELDS[name].absent]),
  ) as PersonalData;
}

/** Returns all fields by the names that clients use. */
export function showPerson(reported: ReportedPerson): z.output<z.ZodObject<ShownShape>> {
  const data = toPersonalData(reported);
  return Object.fromEntries(
    NAMES.map((name) => [PERSONAL_FIELDS[name].shownAs, data[name]]),
  ) as z.output<z.ZodObject<ShownShape>>;
}

/** A fault in a value. Its path has positions, because the names of the fields may be personal data. */
interface Fault {
  path: number[];
  message: string;
}

/** Finds the first part of a value that a store or client could not hold unchanged; null if there is none. */
function findFault(value: unknown, path: Fault["path"] = []): Fault | null {
  const fault = (message: string) => ({ path, message });
  if (value === null || typeof value === "boolean") return null;
  if (typeof value === "string") return isText(value) ? null : fault("must be well-formed text");
  if (typeof value === "number" && Number.isFinite(value))
    return Number.isInteger(value) && !Number.isSafeInteger(value) ? fault(UNSAFE) : null;
  if (!Array.isArray(value) && !isPlainObject(value)) return fault("must be JSON");
  if (path.length >= NESTING_MAX) return fault(`must be nested at most ${NESTING_MAX} deep`);
  if (!Object.keys(value).every(isText)) return fault("must have names of well-formed text");
  for (const [position, item] of Object.values(value).entries()) {
    const found = findFault(item, [...path, position]);
    if (found) return found;
  }
  return null;
}

// The parser of the JSON has already rounded larger integers.
const UNSAFE = `must be between ${Number.MIN_SAFE_INTEGER} and ${Number.MAX_SAFE_INTEGER}; write it as text`;

function isPlainObject(value: unknown): value is Record<string, unknown> {
  return Object.prototype.toString.call(value) === "[object Object]";
}

/**
 * Writes docs/platform.md: what the operations of the Platform API take and answer.
 *
 *     npm run reference
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Operation } from "../../src/platform/operation.ts";
import { ROOT } from "../shared/checkout.ts";
import { BY_NAME, type Field, fieldsOf } from "./fields.ts";

/** The file, relative to the checkout. */
export const REFERENCE = "docs/platform.md";

const HEAD = `# The Platform API

What the platform and operators can do: as RPC methods of the entrypoint \`Platform\`, and in a
terminal as \`npm run platform -- METHOD 'JSON'\`, and [over HTTPS](recording.md#by-https). Each takes one object and answers one; fields without
a type are strings. Invalid input is refused with an error that says what is wrong and where, and
nothing is written.

Next to its input, each takes an \`actor\` of up to 100 characters, for the
[audit trail](operations.md#audit-trail): who it is that calls.

This page is made from the operations in [\`src/platform/\`](../src/platform/) by \`npm run reference\`.
`;

/** The page's text. */
export function platformReference(): string {
  return [HEAD, ...BY_NAME.map(([name, operation]) => describe(name, operation))].join("\n");
}

function describe(name: string, { about, input, output, examples }: Operation): string {
  return [
    `## ${name}`,
    "",
    about,
    "",
    ...listOf("Input", fieldsOf(input, "input")),
    ...listOf("Answer", fieldsOf(output, "output")),
    "```sh",
    ...examples.map((example) => `npm run platform -- ${name} '${JSON.stringify(example)}'`),
    "```",
    "",
  ].join("\n");
}

/** A list of fields, nested like the object that they describe. */
function listOf(title: string, fields: Field[]): string[] {
  if (fields.length === 0) return [`${title}: \`{}\``, ""];
  const lines = fields.map(({ path, isRequired, isNullable, type, about }) => {
    // Whatever may be left out may be null as well.
    const orNull = isRequired && isNullable ? " or null" : "";
    const name = `${"  ".repeat(path.length - 1)}- \`${path.at(-1)}${isRequired ? "" : "?"}\``;
    const typed = type === "string" && !orNull ? name : `${name} (${type}${orNull})`;
    return about ? `${typed}: ${about}` : typed;
  });
  return [`${title}:`, "", ...lines, ""];
}

if (import.meta.main) writeFileSync(join(ROOT, REFERENCE), platformReference());

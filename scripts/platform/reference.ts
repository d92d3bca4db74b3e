import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { WebhookEvent } from "../../src/contract/enumerations.ts";
import type { Operation } from "../../src/platform/operation.ts";
import { ROOT } from "../shared/checkout.ts";
import { parseArguments } from "../shared/command.ts";
import { BY_NAME, type Field, fieldsOf } from "./fields.ts";
import { toCommand } from "./help.ts";

/** The file, relative to the checkout. */
export const REFERENCE = "docs/platform.md";

const USAGE = `npm run reference

Writes ${REFERENCE}: the input and output of each operation of the Platform API.
`;

const HEAD = `# The Platform API

The methods of the platform and of operators, as RPC methods of the entrypoint \`Platform\`, in a terminal
as \`npm run platform -- METHOD 'JSON'\`, and [over HTTPS](recording.md#by-https). Each takes one object
and returns one. The examples act on the local server; \`--remote\` makes them act on production.
Invalid input writes nothing.

- Fields without a type are strings or ids, which begin with their kind, such as \`wks_…\`; an input
  with \`?\` may be left out.
- An event type is a \`WebhookEvent\` of the [API](../openapi.json).
- A page has \`items\` and a \`nextCursor\`. To get the next page, pass it as \`cursor\`. On the last page, it is null.
  The command in a terminal skips empty pages. It reads all pages of \`findLeads\` and \`listApiKeys\`
  and, with \`--ndjson\`, of \`exportWorkspace\`, \`listAuditTrail\` and \`listWorkspaces\`.
- Any input may have an \`actor\` of up to 100 characters, for the [audit trail](admin.md#audit-trail):
  who is calling.
- Names, descriptions and actors hold no control characters and no bidirectional overrides. What people
  wrote, such as the name of a lead, may hold any: a terminal shows them as escapes such as \`\\u001b\`,
  which mean the same in JSON.
`;

/** The page's text. */
export function platformReference(): string {
  const shown: Shown = new Map();
  return [HEAD, ...BY_NAME.map(([name, operation]) => describe(name, operation, shown))].join("\n");
}

/** The method that showed a list of fields first, by the list's lines. */
type Shown = Map<string, string>;

/** The type of a field that takes one of them, which the page's head lists. */
const EVENT_TYPES = WebhookEvent.options.join(" | ");

/** Lists of at least this many lines are shown once, and then referred to. */
const REFERRED_TO_MIN = 2;

function describe(
  name: string,
  { about, input, output, examples }: Operation,
  shown: Shown,
): string {
  const taken = fieldsOf(input, "input").filter(({ path }) => path[0] !== "cursor");
  const returned = fieldsOf(output, "output");
  const isPage = returned.some(({ path }) => path[0] === "items");
  const items = returned.filter(({ path }) => path[0] === "items");
  const others = returned.filter(({ path }) => !["items", "nextCursor"].includes(path[0] ?? ""));
  const show = (fields: Field[]) => referTo(name, linesOf(fields), shown);
  const parts = [
    `## ${name}`,
    about,
    `\`\`\`sh\n${examples.map((example) => toCommand(name, example)).join("\n")}\n\`\`\``,
    section("Input", show(taken)),
    ...(isPage
      ? [
          section("Output, a page of", show(items.slice(1).map(within))),
          section("And", linesOf(others)),
        ]
      : [section("Output", show(returned))]),
  ];
  return parts
    .filter((part) => part !== "")
    .map((part) => `${part}\n`)
    .join("\n");
}

function section(title: string, lines: string[]): string {
  const [line = "", ...others] = lines;
  if (others.length > 0) return `${title}:\n\n${lines.join("\n")}`;
  return line && `${title}: ${line.slice("- ".length)}`;
}

/** A field, as the object that it is in has it. */
function within(field: Field): Field {
  return { ...field, path: field.path.slice(1) };
}

/** A list of fields, nested like the object that they describe. Those without a description share a line. */
function linesOf(fields: Field[]): string[] {
  const lines: { names: string[]; indent: string; rest: string }[] = [];
  for (const [i, { path, isRequired, isNullable, type, about }] of fields.entries()) {
    // A field that may be omitted may be null as well.
    const orNull = isRequired && isNullable ? ["or null"] : [];
    const shown = type.replace("string, ", "").replace(EVENT_TYPES, "event type");
    const typed = [...(["string", "id"].includes(type) ? [] : [shown]), ...orNull].join(" ");
    // A prefix of ids says what their name says.
    const meaning = about && !/^\w{3}_…$/.test(about) ? `: ${about}` : "";
    const indent = "  ".repeat(path.length - 1);
    const rest = `${typed && ` (${typed})`}${meaning}`;
    const last = lines.at(-1);
    const isParent = (fields[i + 1]?.path.length ?? 0) > path.length;
    const shares = !meaning && !isParent && last?.indent === indent && last.rest === rest;
    const name = `\`${path.at(-1)}${isRequired ? "" : "?"}\``;
    if (shares) last.names.push(name);
    else lines.push({ names: [name], indent, rest });
  }
  return lines.map(({ names, indent, rest }) => `${indent}- ${names.join(", ")}${rest}`);
}

/** Replaces the lists that another method has shown by a reference to it. */
function referTo(method: string, lines: string[], shown: Shown): string[] {
  const text = `${lines.join("\n")}\n`;
  const [known, first] = [...shown].find(([list]) => text.startsWith(list)) ?? ["", ""];
  const rest = lines.slice(known.split("\n").length - 1);
  const own = rest.filter((line) => line.startsWith("- "));
  if (known === "" && own.length >= REFERRED_TO_MIN) shown.set(text, method);
  const nested = own.flatMap((line, i) => {
    const [from, to] = [rest.indexOf(line), rest.indexOf(own[i + 1] ?? "")];
    const inner = rest.slice(from + 1, to < 0 ? undefined : to).map((each) => each.slice(2));
    return [line, ...referTo(method, inner, shown).map((each) => `  ${each}`)];
  });
  return ["", method].includes(first)
    ? nested
    : [`- as in [${first}](#${first.toLowerCase()})`, ...nested];
}

if (import.meta.main) {
  parseArguments(USAGE, {});
  writeFileSync(join(ROOT, REFERENCE), platformReference());
}

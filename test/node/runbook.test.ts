import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ROOT } from "../../scripts/shared/checkout.ts";
import { en } from "../../site/portal/texts/en.ts";
import { fr } from "../../site/portal/texts/fr.ts";

const read = (file: string) => readFileSync(join(ROOT, file), "utf8");

const RUNBOOK = read("docs/runbook.md");
const ALARMS: { name: string; count?: number; minutes?: number }[] = JSON.parse(
  read("scripts/alarms/alarms.json"),
);
const alarms = ALARMS.map(({ name }) => name);
const SOURCES = readdirSync(join(ROOT, "src"), { recursive: true, encoding: "utf8" })
  .filter((file) => /\.tsx?$/.test(file) && file !== "log.ts")
  .map((file) => read(join("src", file)));

/** The first arguments of all calls of a function of src/log.ts. */
function loggedWith(name: "log" | "logError"): string[] {
  const calls = SOURCES.flatMap((text) => [
    ...text.matchAll(new RegExp(`(?<![.\\w])${name}\\(\\s*(?:"(\\w+)")?`, "g")),
  ]);
  return calls.map(([call, event]) => event ?? call);
}

/** The text below a heading, up to the next one of its level. */
function sectionOf(heading: string): string {
  const [, below = ""] = RUNBOOK.split(`\n${heading}\n`);
  const [own = ""] = below.split(new RegExp(`^${heading.split(" ")[0]} `, "m"));
  return own;
}

const subsectionsOf = (chapter: string) =>
  [...sectionOf(`## ${chapter}`).matchAll(/^### (.+)$/gm)].map(([, heading = ""]) => heading);
const withoutTicks = (heading: string) => heading.replaceAll("`", "");

const problems = subsectionsOf("Problems that health names");
const errors = subsectionsOf("Errors in the log").map(withoutTicks);
const sections = [
  ...subsectionsOf("Alarms"),
  ...problems,
  ...subsectionsOf("Errors in the log"),
  ...subsectionsOf("Metrics and checks"),
];

test("the runbook has a section for each alarm, in the order of alarms.json", () => {
  expect(alarms.length).toBeGreaterThan(5);
  expect(subsectionsOf("Alarms").map(withoutTicks)).toEqual(alarms);
});

test("the runbook has the threshold of each alarm that log lines raise", () => {
  const rows = [...sectionOf("## Setting up the alarms").matchAll(/^\| `(.+)` \| (.+) \|$/gm)];
  const raised = ALARMS.filter(({ count }) => count !== undefined);
  expect(rows.map(([, name, threshold]) => [name, threshold])).toEqual(
    raised.map(({ name, count, minutes }) => [name, `${count} in ${minutes} min`]),
  );
});

test("the pages build the Worker before they set its triggers, for which wrangler reads the assets", () => {
  const pages = readdirSync(join(ROOT, "docs")).filter((file) => file.endsWith(".md"));
  const commands = pages.flatMap((file) => [
    ...read(join("docs", file)).matchAll(/`([^`]*)npx wrangler triggers deploy[^`]*`/g),
  ]);
  expect(commands.length).toBeGreaterThan(1);
  for (const [, before] of commands) expect(before).toBe("npm run check:deploy && ");
});

test("the on-call page leads from each alarm to its section", () => {
  const rows = [...read("docs/oncall.md").matchAll(/^\| \[`(\w+)`\]\(runbook\.md#(\w+)\)/gm)];
  expect(rows.map(([, name, anchor]) => [name, anchor])).toEqual(
    alarms.map((name) => [name, name]),
  );
});

test("the runbook has a section for each error that the code logs, and for no other", () => {
  const logged = new Set(loggedWith("logError"));
  expect(logged.size).toBeGreaterThan(10);
  const known = alarms.filter((name) => logged.has(name));
  expect([...known, ...errors].toSorted()).toEqual([...logged].toSorted());
});

test("the runbook says what each other event of the log means", () => {
  const rows = [...sectionOf("## Other events in the log").matchAll(/^\| (`.+?) \|/gm)];
  const listed = rows.flatMap(([, names = ""]) => names.match(/\w+/g) ?? []);
  const logged = new Set(loggedWith("log"));
  expect(logged.size).toBeGreaterThan(10);
  // `health` is an alarm, too, and listed all the same.
  const others = [...logged].filter((event) => event === "health" || !alarms.includes(event));
  expect(listed.toSorted()).toEqual(others.toSorted());
});

test("the runbook names the fields of each other event of the log", () => {
  const rows = [...sectionOf("## Other events in the log").matchAll(/^\| `(\w+)` \| (.+?) \|/gm)];
  const named = new Map(rows.map(([, event, fields = ""]) => [event, fields.match(/\w+/g) ?? []]));
  const calls = SOURCES.flatMap((text) => [
    ...text.matchAll(/(?<![.\w])log\("(\w+)", \{([^}]*)\}/g),
  ]).filter(([, event = ""]) => named.has(event));
  expect(calls.length).toBeGreaterThan(7);
  for (const [, event, literal = ""] of calls) {
    const fields = literal
      .replace(/\/\/.*/g, "")
      .split(",")
      .flatMap((field) => /^\s*(\w+)/.exec(field)?.[1] ?? []);
    expect(named.get(event), event).toEqual(expect.arrayContaining(fields));
  }
});

test("the runbook has a section for each sentence that health can say", () => {
  const [, code = ""] = read("src/service-health.ts").split(
    "export async function findServiceHealth",
  );
  const sentences = [...code.matchAll(/`([^`\n]+)`|"([^"\n]+ [^"\n]+)"/g)]
    .map(([, template, text]) => (template ?? text ?? "").split(/\$\{.+?\}/))
    .filter((parts) => /[a-z]/.test(parts.join("")));
  expect(sentences.length).toBeGreaterThan(5);
  const chapter = sectionOf("## Problems that health names");
  const named = [...chapter.matchAll(/^(?:### |Also )`(.+?)`/gm)].map(([, text = ""]) => text);
  const isNamed = (parts: string[]) =>
    named.some((text) => new RegExp(`^${parts.join(".+")}$`).test(text));
  expect(sentences.filter((parts) => !isNamed(parts))).toEqual([]);
  expect(named).toHaveLength(sentences.length);
});

test.each([
  ...["no database is bound as ", "no encryption key ", " does not respond"],
  "a queue did not accept wake-up messages",
])("the runbook quotes a message as the code has it: %s", (message) => {
  expect(RUNBOOK).toContain(message);
  expect(SOURCES.some((text) => text.includes(message))).toBe(true);
});

test.each(sections)("the section %s has its five lines, and numbered steps", (heading) => {
  const text = sectionOf(`### ${heading}`);
  const lines = [...text.matchAll(/^- \*\*(.+?):\*\*(?= \S|\n {2}1\. )/gm)].map(
    ([, label]) => label,
  );
  expect(lines).toEqual(["Means", "Impact", "Check", "Fix", "If it persists"]);
  const [, fix = ""] = text.split("- **Fix:**");
  expect(fix).toMatch(/^ {2}1\. \S/m);
});

test("the page about customers has each state in the words of the portal", () => {
  const page = read("docs/customers.md");
  const rows = [
    ...Object.entries(en.states).map(([state, text]) => [text, fr.states[state as "slow"], state]),
    ...Object.entries(en.deliveryStates).map(([state, text]) => [
      ...[text, fr.deliveryStates[state as "test"], state],
    ]),
    [en.untried, fr.untried, "healthy"],
  ];
  for (const [english, french, state] of rows)
    expect(page).toContain(`\n| ${english} | ${french} | \`${state}\` | `);
});

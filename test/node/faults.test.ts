// biome-ignore-all lint/suspicious/noTemplateCurlyInString: quoted sources
import { readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { mutationsOf } from "../../scripts/mutations.ts";
import type { Fault } from "../faults/fault.ts";
import { FAULTS } from "../faults/faults.ts";
import { findPlace } from "../faults/place.ts";

const SRC = join(import.meta.dirname, "../../src");
const TABLES = join(import.meta.dirname, "../faults");
const files = readdirSync(SRC, { recursive: true, encoding: "utf8" });
const sources = new Map(
  files
    .filter((file) => file.endsWith(".ts"))
    .map((file) => [file, readFileSync(join(SRC, file), "utf8")]),
);

test("Each planted fault has one place", () => {
  const lost = FAULTS.flatMap((fault) => {
    const place = findPlace(fault, sources);
    if (typeof place !== "number") return [];
    const tables = readdirSync(TABLES).filter((name) =>
      readFileSync(join(TABLES, name), "utf8").includes(fault.promise),
    );
    return `test/faults/${tables}: ${place} places in src/${fault.file}: ${fault.text}`;
  });
  expect(lost).toEqual([]);
});

test("Each planted fault changes something, and no two are the same", () => {
  const edits = FAULTS.map(({ file, text, replacement }) => `${file}: ${text} → ${replacement}`);
  expect(new Set(edits).size).toBe(edits.length);
  expect(FAULTS.filter(({ text, replacement }) => text === replacement)).toEqual([]);
});

test("Each folder of the sources has planted faults", () => {
  const folders = files.filter((path) => statSync(join(SRC, path)).isDirectory());
  const covered = new Set(
    FAULTS.map((fault) => {
      const place = findPlace(fault, sources);
      return typeof place === "number" ? "" : dirname(place.file);
    }),
  );
  expect(folders.filter((folder) => !covered.has(folder))).toEqual([]);
});

const FAULT: Fault = {
  file: "a.ts",
  text: "if (now < row.until) return null;",
  replacement: "if (now <= row.until) return null;",
  promise: "",
};
const SOUND = "if (now < row.until) return null;\nreturn row;\n";
const replacementIn = (source: string, file = "a.ts") => {
  const place = findPlace(FAULT, new Map([[file, source]]));
  return typeof place === "number" ? place : place.replacement;
};

test("A planted fault survives a rename", () => {
  const renamed = SOUND.replaceAll("until", "expiresAt").replaceAll("row", "entry");
  expect(replacementIn(renamed)).toBe("if (now <= entry.expiresAt) return null;");
});

test("A planted fault survives a move to another file", () => {
  expect(replacementIn(SOUND, "b/c.ts")).toBe(FAULT.replacement);
});

test("A planted fault survives formatting", () => {
  expect(replacementIn("if (\n  now < row.until\n)\n  return null;")).toBe(FAULT.replacement);
});

test("A planted fault whose condition has changed is not found", () => {
  expect(replacementIn(SOUND.replace("<", ">"))).toBe(0);
});

test("A planted fault is not found where three names differ", () => {
  expect(replacementIn("if (a < b.c) return null;")).toBe(0);
});

/** What a source becomes by each of its mutations. */
function mutated(source: string): string[] {
  return mutationsOf("a.ts", source).map(
    ({ start, end, replacement }) => source.slice(0, start) + replacement + source.slice(end),
  );
}

test.each([
  ["if (a) b();", ["if (true) b();", "if (false) b();", "if (a) ;"]],
  ["const a = b && c;", ["const a = b;", "const a = c;"]],
  ["const a = !b;", ["const a = (b);"]],
  ["const a = b <= c;", ["const a = b < c;", "const a = b > c;"]],
  ["const a = b === c;", ["const a = b !== c;"]],
  ["const a = 10;", ["const a = 11;"]],
  ["await a();", [";", "void a();"]],
  ["throw a;", [";"]],
  ["const a = b.every(c);", ["const a = b.some(c);"]],
  [
    "const a = sql`b <= ${c} AND ${d})`;",
    [
      "const a = sql`b < ${c} AND ${d})`;",
      "const a = sql`b <= ${c} OR ${d})`;",
      "const a = sql`b <= ${c} )`;",
    ],
  ],
  ["const a = { b: sql`1`, c: sql`2` };", ["const a = { c: sql`2`, b: sql`1` };"]],
])("The mutations of `%s`", (source, expected) => {
  expect(mutated(source)).toEqual(expected);
});

test.each([
  'import { a } from "b";',
  "type A = 1 | true;",
  'log("a", { b: 1 });',
  "const a = z.string().openapi({ minLength: 1 });",
  'const a = b + "c";',
  "const a = b.toString();",
])("`%s` has no mutation that matters", (source) => {
  expect(mutated(source)).toEqual([]);
});

import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { ROOT } from "../../scripts/shared/checkout.ts";

const SRC = join(ROOT, "src");
const BUNDLE = join(ROOT, "dist/worker/index.js");

/** What startup loads: static imports, except type imports, starting from `file`. */
function loadedBy(file: string, seen = new Set<string>()): Set<string> {
  if (seen.has(file)) return seen;
  seen.add(file);
  if (!file.endsWith(".ts")) return seen;
  const text = readFileSync(join(SRC, file), "utf8");
  const imports = text.matchAll(/^(?:import|export)(?! type)[^;]*?from "([^"]+)"/gm);
  for (const [, specifier = ""] of imports)
    loadedBy(specifier.startsWith(".") ? join(dirname(file), specifier) : specifier, seen);
  return seen;
}

test("startup loads no schema and nothing that only makes documents", () => {
  const loaded = loadedBy("index.ts");
  expect(loaded.size).toBeGreaterThan(40);
  expect(loaded).toContain("hono/hono-base");
  expect([...loaded].filter((module) => module.startsWith("zod"))).toEqual([]);
  expect([...loaded].filter((file) => file.startsWith("document/"))).toEqual([]);
});

test("the bundle contains neither texts nor code that no request needs", () => {
  const text = readFileSync(BUNDLE, "utf8");
  // A locale of zod, its JSON Schema generator, Postgres, texts of the document and of the help.
  for (const part of [
    "Ungültige Eingabe",
    "draft-07",
    "PgColumn",
    "Deduplicate",
    "Lists are newest first",
    "Creates a workspace",
  ])
    expect(text.includes(part), part).toBe(false);
  expect(readdirSync(join(ROOT, "dist/assets"))).toContain("openapi.json");
});

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseSync } from "oxc-parser";
import { expect, test } from "vitest";

const SRC = join(import.meta.dirname, "../../src");

/** Lists the names that a file exports; a value and a type with one name, or overloads, count once. */
function exportedNames(file: string): Set<string> {
  const { program } = parseSync(file, readFileSync(join(SRC, file), "utf8"));
  const names = program.body.flatMap((statement) => {
    if (statement.type !== "ExportNamedDeclaration") return [];
    const { declaration, specifiers } = statement;
    const exported = specifiers.map((specifier) =>
      // A name that comes from another file is the same thing there.
      statement.source || specifier.exported.type !== "Identifier" ? [] : specifier.exported.name,
    );
    if (declaration === null) return exported.flat();
    const declared =
      declaration.type === "VariableDeclaration"
        ? declaration.declarations.map(({ id }) => id)
        : "id" in declaration
          ? [declaration.id]
          : [];
    return declared.flatMap((id) => (id?.type === "Identifier" ? id.name : []));
  });
  return new Set(names);
}

test("An exported name has one meaning", () => {
  const files = readdirSync(SRC, { recursive: true, encoding: "utf8" });
  const exported = files
    .filter((file) => file.endsWith(".ts") && !file.endsWith(".d.ts"))
    .flatMap((file) => [...exportedNames(file)].map((name) => ({ name, file })));
  const byName = Map.groupBy(exported, ({ name }) => name);
  const repeated = [...byName].filter(([, places]) => places.length > 1);
  expect(exported.length).toBeGreaterThan(500);
  expect(repeated.map(([name, places]) => `${name}: ${places.map(({ file }) => file)}`)).toEqual(
    [],
  );
});

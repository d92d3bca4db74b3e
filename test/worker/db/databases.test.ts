import { expect, test } from "vitest";
import { databaseNames, hasOneDatabase } from "../../../src/db/databases.ts";

const bindings = (...names: string[]) =>
  Object.fromEntries(names.map((name) => [name, {}])) as unknown as Env;

test("the databases are those that are bound as DB, DB_2, DB_3 and so on, in this order", () => {
  const env = bindings(
    "DB_10",
    "DB_3",
    "DB",
    "DB_0",
    "DB_1",
    "DB_01",
    "DB_2",
    "DB_X",
    "DELIVERIES",
  );
  expect(databaseNames(env)).toEqual(["DB", "DB_2", "DB_3", "DB_10"]);
});

test("a second database counts, whatever its number", () => {
  expect(hasOneDatabase(bindings("DB", "DELIVERIES"))).toBe(true);
  for (const name of ["DB_2", "DB_3"]) expect(hasOneDatabase(bindings("DB", name))).toBe(false);
});

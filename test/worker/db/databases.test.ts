import { expect, test } from "vitest";
import { databaseNames } from "../../../src/db/databases.ts";

test("the databases are those that are bound as DB, DB_2, DB_3 and so on, in this order", () => {
  const names = ["DB_10", "DB_3", "DB", "DB_0", "DB_1", "DB_01", "DB_2", "DB_X", "DELIVERIES"];
  const env = Object.fromEntries(names.map((name) => [name, {}])) as unknown as Env;
  expect(databaseNames(env)).toEqual(["DB", "DB_2", "DB_3", "DB_10"]);
});

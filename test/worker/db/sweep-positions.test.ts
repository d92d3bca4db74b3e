import { expect, test } from "vitest";
import { connect } from "../../../src/db/client.ts";
import { findPosition, updatePosition } from "../../../src/db/sweep-positions.ts";
import { meteredDatabase } from "../../support/metered-database.ts";

test("A position that is stored already is not written again", async () => {
  const { DB, rows } = meteredDatabase();
  const db = connect(DB);
  await updatePosition(db, "part", "1");
  const { written } = rows;
  await updatePosition(db, "part", "1");
  expect(rows.written).toBe(written);
  await updatePosition(db, "part", "2");
  expect(await findPosition(db, "part")).toBe("2");
});

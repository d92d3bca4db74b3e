import { env } from "cloudflare:workers";
import { sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/d1";
import { describe, expect, test } from "vitest";
import { retryTransient } from "../../src/db/errors.ts";
import { workspaces } from "../../src/db/schema.ts";
import { logError } from "../../src/log.ts";
import { keepLog } from "../support/log-lines.ts";

const db = drizzle(env.DB);
const lines = keepLog();

const PERSON = "zoe@example.com";
const EVENT = "log_tested";

/** What this test has logged. Requests of earlier tests, which end in the background, may log as well. */
const ownLines = () => lines.filter((line) => line.includes(EVENT));

/** The only line that this test has logged. */
function written(): Record<string, unknown> {
  expect(ownLines()).toHaveLength(1);
  return JSON.parse(ownLines()[0] ?? "");
}

describe("an error", () => {
  test.each<[unknown, object]>([
    [new TypeError("no such thing"), { error: "TypeError", message: "no such thing" }],
    [PERSON, { error: "string" }],
    [42, { error: "number" }],
    [null, { error: "object" }],
    [undefined, { error: "undefined" }],
    [{ email: PERSON }, { error: "object" }],
  ])("is logged with its name and message if it is one, or its type: %j", (thrown, shown) => {
    logError(EVENT, thrown, { part: 1 });
    expect(written()).toEqual({ event: EVENT, part: 1, ...shown });
  });

  test("is logged without the e-mail addresses in its message", () => {
    logError(EVENT, new Error('550 <zoe@example.com>, "léa+x@b.example": mailbox full'));
    expect(written().message).toBe('550 <…@…>, "…@…": mailbox full');
  });

  test.each([
    [
      "a query",
      () => db.insert(workspaces).values({ name: PERSON, adminEmails: [PERSON] } as never),
      "NOT NULL constraint failed: workspaces.id",
    ],
    [
      "a retried query",
      () => retryTransient(() => db.all(sql`SELECT * FROM nowhere WHERE email = ${PERSON}`)),
      "no such table: nowhere",
    ],
  ])(
    "of %s is logged as the database's own, without Drizzle's parameters",
    async (_, query, own) => {
      const error = await Promise.resolve(query()).then(
        () => expect.unreachable("the query succeeded"),
        (error: Error) => error,
      );
      expect(error.message).toContain(PERSON);
      logError(EVENT, error);
      expect(written().message).toContain(own);
      expect(ownLines().join()).not.toMatch(/zoe@example|insert into/);
    },
  );

  test("of a query has no parameters if it has no cause, or one that is not an Error", () => {
    const message = "Failed query: select ?\nparams: Zoé Larrieu";
    for (const cause of [undefined, "Zoé Larrieu", { name: "Zoé Larrieu" }])
      logError(EVENT, new Error(message, { cause }));
    expect(ownLines()).toHaveLength(3);
    expect(ownLines().join()).not.toContain("Larrieu");
  });
});

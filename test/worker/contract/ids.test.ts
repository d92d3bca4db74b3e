import { describe, expect, test } from "vitest";
import {
  derivedId,
  eventIdAt,
  ID_PREFIXES,
  type IdKind,
  isId,
  newEventId,
  randomId,
} from "../../../src/contract/ids.ts";

const KINDS = Object.keys(ID_PREFIXES) as IdKind[];

test("an id starts with the prefix of its kind, is no UUID, and is unique", () => {
  const prefixes = { automation: "aut_", agent: "agt_", run: "run_", lead: "lea_" };
  const others = { webhook: "whk_", event: "evt_", workspace: "wks_", key: "key_" };
  expect(ID_PREFIXES).toEqual({ ...prefixes, ...others });
  for (const kind of KINDS)
    expect(randomId(kind)).toMatch(new RegExp(`^${ID_PREFIXES[kind]}[0-9a-z]{25}$`));
  expect(new Set(Array.from({ length: 1_000 }, () => randomId("event"))).size).toBe(1_000);
});

describe("an id derived from the platform's reference", () => {
  // Computed with Python's hashlib: base 36 of the first 128 bits of SHA-256 over the JSON.
  test("never changes, and looks like every other id", async () => {
    expect(await derivedId("lead", "wks_1", "crm-42")).toBe("lea_e7uwfhxo7gx0tnl471t6zu2sf");
    expect(await derivedId("automation", "wks_1", 'é😀"\\')).toBe("aut_c3wxqboyizyx8u0nsk0hrkl8r");
    for (const reference of ["", "漢".repeat(512)])
      expect(isId("agent", await derivedId("agent", "wks_1", reference))).toBe(true);
  });

  test("differs by kind, workspace and reference, even if their concatenation is the same", async () => {
    const ids = [await derivedId("run", "wks_1", "a")];
    for (const [workspaceId, reference] of [
      ...[
        ["wks_1", "a"],
        ["wks_2", "a"],
        ["wks_1", "b"],
        ["wks_1a", ""],
        ["wks_", "1a"],
      ],
      ...[
        ['wks_1","a', "b"],
        ["wks_1", 'a","b'],
      ],
    ] as [string, string][])
      ids.push(await derivedId("lead", workspaceId, reference));
    expect(new Set(ids.map((id) => id.slice(4))).size).toBe(8);
  });
});

describe("an event id", () => {
  const MONDAY = Date.UTC(2026, 0, 5, 12);
  const TIMES = [0, 1, 1_000, 2 ** 32, MONDAY, MONDAY + 1, 2 ** 48 - 1];

  test("has the same length and alphabet as every other id, and is unique", () => {
    const ids = Array.from({ length: 1_000 }, () => newEventId(2 ** 40));
    for (const id of ids) expect(isId("event", id)).toBe(true);
    expect(new Set(ids).size).toBe(1_000);
  });

  test("sorts by time", () => {
    const ids = TIMES.map(newEventId);
    expect(ids.toSorted()).toEqual(ids);
  });

  test("sorts after the lower bound of its time, and before that of the next millisecond", () => {
    for (const time of TIMES.slice(0, -1))
      for (let i = 0; i < 50; i++) {
        const id = newEventId(time);
        expect(id >= eventIdAt(time)).toBe(true);
        expect(id < eventIdAt(time + 1)).toBe(true);
      }
  });

  test("has a lower bound below all others for a time before 1970", () => {
    expect(eventIdAt(-1)).toBe(`evt_${"0".repeat(25)}`);
  });
});

describe("what cannot be one of our ids", () => {
  const id = randomId("automation");

  test.each([
    ["nothing", ""],
    ["the prefix alone", "aut_"],
    ["another kind's", `lea_${id.slice(4)}`],
    ["the prefix in capitals", `AUT_${id.slice(4)}`],
    ["capitals", id.toUpperCase()],
    ["one character less", id.slice(0, -1)],
    ["one character more", `${id}0`],
    ["a trailing line feed", `${id.slice(0, -1)}\n`],
    ["a NUL", `${id.slice(0, -1)}\0`],
    ["a non-ASCII letter", `${id.slice(0, -1)}é`],
    ["10 000 characters", `aut_${"a".repeat(10_000)}`],
  ])("is rejected: %s", (_, text) => {
    expect(isId("automation", id)).toBe(true);
    expect(isId("automation", text)).toBe(false);
  });
});

import { expect, test } from "vitest";
import {
  derivedId,
  eventIdAt,
  eventTimeOf,
  ID_PREFIXES,
  type IdKind,
  isId,
  newEventId,
  newEventIds,
  randomId,
} from "../../../src/contract/ids.ts";

test("an id starts with the prefix of its kind, is no UUID, and is unique", () => {
  expect(ID_PREFIXES).toEqual({
    ...{ automation: "aut_", agent: "agt_", run: "run_", lead: "lea_" },
    ...{ webhook: "whk_", event: "evt_", replay: "rpl_", workspace: "wks_", key: "key_" },
  });
  for (const kind of Object.keys(ID_PREFIXES) as IdKind[])
    expect(randomId(kind)).toMatch(new RegExp(`^${ID_PREFIXES[kind]}[0-9a-z]{25}$`));
  for (const make of [() => randomId("event"), () => newEventId(2 ** 40)]) {
    const ids = Array.from({ length: 1_000 }, make);
    expect(new Set(ids.filter((id) => isId("event", id))).size).toBe(1_000);
  }
});

// Computed with Python's hashlib: base 36 of the first 128 bits of SHA-256 over the JSON.
test("an id derived from the platform's reference never changes", async () => {
  expect(await derivedId("lead", "wks_1", "crm-42")).toBe("lea_e7uwfhxo7gx0tnl471t6zu2sf");
  expect(await derivedId("automation", "wks_1", 'é😀"\\')).toBe("aut_c3wxqboyizyx8u0nsk0hrkl8r");
  for (const reference of ["", "漢".repeat(512)])
    expect(isId("agent", await derivedId("agent", "wks_1", reference))).toBe(true);
});

test("derived ids differ by kind, workspace and reference, even if their concatenation is the same", async () => {
  const ids = await Promise.all([
    derivedId("run", "wks_1", "a"),
    derivedId("lead", "wks_1", "a"),
    derivedId("lead", "wks_2", "a"),
    derivedId("lead", "wks_1", "b"),
    derivedId("lead", "wks_1a", ""),
    derivedId("lead", "wks_", "1a"),
    derivedId("lead", 'wks_1","a', "b"),
    derivedId("lead", "wks_1", 'a","b'),
  ]);
  expect(new Set(ids.map((id) => id.slice(4))).size).toBe(8);
});

test("event ids sort by time, between the lower bounds of their millisecond and of the next", () => {
  const monday = Date.UTC(2026, 0, 5, 12);
  const times = [0, 1, 1_000, 2 ** 32, monday, monday + 1, 2 ** 48 - 1];
  for (let i = 0; i < 50; i++) {
    const ids = times.flatMap((time) => [eventIdAt(time), newEventId(time)]);
    expect(ids.toSorted()).toEqual(ids);
    for (const time of times.slice(0, -1))
      expect(newEventId(time) < eventIdAt(time + 1), String(time)).toBe(true);
    for (const time of times) expect(eventTimeOf(newEventId(time))).toBe(time);
  }
  expect(eventIdAt(-1)).toBe(`evt_${"0".repeat(25)}`);
});

test("event ids that are generated together are sorted", () => {
  const ids = newEventIds(20, Date.now());
  expect(ids.toSorted()).toEqual(ids);
});

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
])("what cannot be one of our ids is rejected: %s", (_, text) => {
  expect(isId("automation", id)).toBe(true);
  expect(isId("automation", text)).toBe(false);
});

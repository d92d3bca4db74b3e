import { afterAll, beforeAll, expect, test } from "vitest";
import { periodOf } from "../../site/portal/filters.ts";
import { en } from "../../site/portal/texts/en.ts";
import { fr } from "../../site/portal/texts/fr.ts";

const zone = process.env.TZ;
beforeAll(() => {
  process.env.TZ = "America/Los_Angeles";
});
afterAll(() => {
  if (zone === undefined) delete process.env.TZ;
  else process.env.TZ = zone;
});

test.each([
  ["today", "2026-11-29T01:00:00Z", "2026-11-28T08:00:00.000Z", null],
  ["yesterday", "2026-11-29T01:00:00Z", "2026-11-27T08:00:00.000Z", "2026-11-28T08:00:00.000Z"],
  ["week", "2026-11-29T01:00:00Z", "2026-11-22T08:00:00.000Z", null],
  // The clocks go back on the first of November, so this day has 25 hours.
  ["yesterday", "2026-11-02T20:00:00Z", "2026-11-01T07:00:00.000Z", "2026-11-02T08:00:00.000Z"],
])("The portal's filter %s at %s is of the reader's time zone", (when, now, since, until) => {
  const period = periodOf(new URLSearchParams({ when }), Date.parse(now));
  expect(period).toEqual({ since, until });
});

test("French counts zero in the singular", () => {
  expect(fr.usagePage.peakValue(0, "0")).toBe("0\u00a0requête, soit 0 de la limite");
});

test("French has no-break spaces inside « », before : ; ? ! and between a number and its noun", () => {
  const textsIn = (value: unknown): string[] => {
    if (typeof value === "function") return textsIn(value("x", "x", "x"));
    return typeof value === "string" ? [value] : Object.values(value as object).flatMap(textsIn);
  };
  const texts = textsIn(fr);
  expect(texts.length).toBeGreaterThan(200);
  const plain =
    / (?=[:;?!»])|(?<=«) |(?<=\d) (?=heure|jour|minute|seconde|livraison|événement|ms)/g;
  // A plain space would look like a no-break space.
  const shown = texts.map((text) => text.replaceAll(plain, "[plain space]"));
  expect(shown.filter((text) => text.includes("[plain space]"))).toEqual([]);
});

test("a time in a sentence has its day unless that is today, in both languages", () => {
  expect(en.webhook.next(en.when.today("14:05"))).toBe("The next attempt is at 14:05.");
  expect(en.webhook.next(en.when.day("27 Nov", "05:05"))).toBe(
    "The next attempt is on 27 Nov at 05:05.",
  );
  expect(fr.deliveries.next(fr.when.day("27 nov.", "05:05"))).toBe(
    "Prochain essai le 27 nov. à 05:05",
  );
  expect(fr.webhook.counts("2", 1)).toBe("2, dont 1 en échec");
});

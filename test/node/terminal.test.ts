import { describe, expect, test } from "vitest";
import { nearest } from "../../scripts/shared/nearest.ts";
import { toTable } from "../../scripts/shared/table.ts";
import { printable, safeLines } from "../../scripts/shared/terminal.ts";
import { refusalOf } from "./support/platform-command.ts";

/** Every character that a terminal obeys, or that reverses the text around it. */
const OBEYED = [
  ...Array.from({ length: 0x20 }, (_, code) => code),
  ...Array.from({ length: 0xa0 - 0x7f }, (_, i) => 0x7f + i),
  ...[
    0x61c, 0x200e, 0x200f, 0x202a, 0x202b, 0x202c, 0x202d, 0x202e, 0x2066, 0x2067, 0x2068, 0x2069,
  ],
].map((code) => String.fromCharCode(code));

describe("what a terminal obeys is shown as an escape", () => {
  test("in a line and, apart from line breaks and tabs, in lines", () => {
    for (const character of OBEYED) {
      const shown = printable(`a${character}b`);
      expect(shown).toMatch(/^a\\(?:[btnfr]|u[0-9a-f]{4})b$/);
      expect(JSON.parse(`"${shown}"`)).toBe(`a${character}b`);
      if (!"\n\t".includes(character)) expect(safeLines(`a${character}b`)).toBe(shown);
    }
  });

  test("and everything else as it is", () => {
    const text = "Zoë 🧑‍👩‍👧 𝔘𝔫𝔦 \\n שלום مرحبا نمی‌شود \u00a0 — e\u0301";
    expect(printable(text)).toBe(text);
    expect(safeLines(`${text}\n\t${text}`)).toBe(`${text}\n\t${text}`);
  });

  test("JSON stays the same JSON", () => {
    const value = { [`${OBEYED.join("")}`]: [OBEYED.join("-")] };
    const shown = safeLines(JSON.stringify(value, null, 2));
    expect(JSON.parse(shown)).toEqual(value);
    expect(shown).not.toMatch(/(?!\n)[\p{Cc}\p{Bidi_Control}]/u);
  });

  test("a value cannot forge a line of a table", () => {
    const items = [{ name: "a\nevt_1  delivered", answer: { "k\u009b": "\u001b[2J" } }];
    expect(toTable({ items, nextCursor: null }).split("\n")).toEqual([
      "name                 answer",
      "a\\nevt_1  delivered  k\\u009b \\u001b[2J",
    ]);
  });
});

test("a list that is wider than the terminal has the fields of an item below each other, and loses nothing", () => {
  const item = (n: number) => {
    const events = ["lead.created", "run.completed", "automation.status_changed"];
    return {
      webhookId: `whk_${n}`,
      url: `https://${"a".repeat(120)}.example`,
      events,
      disabledAt: null,
    };
  };
  const value = { items: [item(1), item(2)], nextCursor: null };
  const narrow = toTable(value, 60);
  for (const line of narrow.split("\n")) expect(line.length).toBeLessThanOrEqual(60);
  const squeezed = (text: string) => text.replace(/\s+/g, "");
  for (const { url, events } of value.items)
    for (const part of [url, ...events]) expect(squeezed(narrow)).toContain(squeezed(part));
  expect(toTable(value, 400).split("\n")).toHaveLength(3);
});

test("a mistyped method or field gets its nearest right form, and an example", async () => {
  expect(await refusalOf("listWebhok")).toBe(
    'listWebhok: no such method. Did you mean listWebhooks?\n\n  npm run platform -- listWebhooks \'{ "workspaceId": "wks_…" }\'',
  );
  expect(await refusalOf("listWebhooks", '{ "workspace": "wks_1" }')).toContain(
    "did you mean workspaceId by workspace?\n\n  npm run platform -- listWebhooks '{",
  );
  expect(nearest("remot", ["json", "remote"])).toBe("remote");
  expect(nearest("createUser", ["listWebhooks", "ledger"])).toBeNull();
});

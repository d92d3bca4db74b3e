import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { platformReference, REFERENCE } from "../../scripts/platform/reference.ts";
import { ROOT } from "../../scripts/shared/checkout.ts";
import { OPERATIONS } from "../../src/platform/operations.ts";

test("the reference of the Platform API is what `npm run reference` writes", () => {
  expect(readFileSync(join(ROOT, REFERENCE), "utf8")).toBe(platformReference());
});

test("every operation is described in sentences, and its examples are valid", () => {
  for (const [name, { about, input, examples }] of Object.entries(OPERATIONS)) {
    expect(about, name).toMatch(/^[A-Z].*\.$/);
    for (const example of examples) expect(input.safeParse(example).success, name).toBe(true);
  }
});

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ROOT } from "../../scripts/shared/checkout.ts";
import { WebhookDelivery } from "../../src/webhooks/bodies.ts";
import { EXAMPLES } from "./support/examples.ts";

const PATH = join(ROOT, "docs/webhooks.md");
const document = readFileSync(PATH, "utf8");

test("docs/webhooks.md links every receiver", () => {
  const linked = [...document.matchAll(/\]\(\.\.\/examples\/receivers\/([\w.]+)\)/g)];
  const present = readdirSync(EXAMPLES).filter((file) => !file.startsWith("."));
  expect(linked.map(([, file]) => file).toSorted()).toEqual(present.toSorted());
});

test("docs/webhooks.md shows a delivery as the contract has it", () => {
  const [, json = ""] = /```json\n([^`]+)```/.exec(document) ?? [];
  const delivery = JSON.parse(json);
  expect(WebhookDelivery.parse(delivery)).toEqual(delivery);
});

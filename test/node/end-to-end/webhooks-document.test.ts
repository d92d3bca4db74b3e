import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { WebhookDelivery, WebhookEvent } from "../../../src/contract/resources.ts";
import { EXAMPLES } from "../support/examples.ts";

const PATH = join(ROOT, "docs/webhooks.md");
const document = readFileSync(PATH, "utf8");

/** A link to an example, and the code block below it. */
const EMBEDDED = /(\]\(\.\.\/examples\/receivers\/([\w.]+)\)\n\n```\w+\n)(?:[^`]|`(?!``))*```/g;

test("docs/webhooks.md holds the receivers as they are; `vitest run webhooks-document -u` writes them", async () => {
  const files = [...document.matchAll(EMBEDDED)].map(([, , file]) => file);
  const present = readdirSync(EXAMPLES).filter((file) => !file.startsWith("."));
  expect(files.toSorted()).toEqual(present.toSorted());
  const current = document.replace(
    EMBEDDED,
    (_block, opening: string, file: string) =>
      `${opening}${readFileSync(join(EXAMPLES, file), "utf8")}\`\`\``,
  );
  await expect(current).toMatchFileSnapshot(PATH);
});

test("docs/webhooks.md shows a delivery of each kind, as the contract has it", () => {
  const shown = [...document.matchAll(/```json\n([^`]+)```/g)].map(([, json = ""]) =>
    JSON.parse(json),
  );
  expect(shown.map(({ type }) => type).toSorted()).toEqual(WebhookEvent.options.toSorted());
  for (const delivery of shown) expect(WebhookDelivery.parse(delivery)).toEqual(delivery);
});

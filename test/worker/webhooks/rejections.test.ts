import { expect, test } from "vitest";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { TELL_AFTER_MS } from "../../../src/contract/limits.ts";
import { rejectedKinds } from "../../../src/webhooks/rejections.ts";

const NOW = Date.UTC(2026, 0, 5, 12);

test("a kind that is rejected is reported after a day, if others are accepted meanwhile and it is still listed", () => {
  const rejection = { since: NOW, outcome: "answered", status: 400 };
  const rejections = { "run.completed": rejection };
  const listed: WebhookEvent[] = ["lead.created", "run.completed"];
  const kinds = (failingSince: number | null, ms: number, events = listed) =>
    rejectedKinds({ rejections, failingSince, events }, NOW + ms);
  const reported = { type: "run.completed", ...rejection };
  expect(kinds(null, TELL_AFTER_MS - 1)).toEqual([]);
  expect(kinds(null, TELL_AFTER_MS)).toEqual([reported]);
  expect(kinds(null, TELL_AFTER_MS, ["lead.created"])).toEqual([]);
  expect(kinds(NOW, TELL_AFTER_MS)).toEqual([]);
  expect(kinds(NOW + 9, TELL_AFTER_MS + 9)).toEqual([reported]);
});

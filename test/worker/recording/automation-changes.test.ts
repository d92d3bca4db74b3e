import { describe, expect, test } from "vitest";
import { LATEST_TIME_MS } from "../../../src/contract/time.ts";
import { decideChange, type WantedAutomation } from "../../../src/recording/automation-changes.ts";
import type { AutomationRow } from "../../../src/records/automations.ts";

const NOW = 1_000_000;
const report: WantedAutomation = {
  id: "aut_1",
  workspaceId: "wks_1",
  reference: "r",
  type: "social_comments",
  provider: "facebook",
  agentId: "agt_1",
  agentName: "A",
  name: "N",
  status: "active",
  updatedAt: "latest",
};
const stored: AutomationRow = { ...report, updatedAt: 500, createdAt: 100, removedAt: null };

/** The stored automation after a report; null if it changes nothing. */
function resultOf(differences: Partial<WantedAutomation>, before: AutomationRow | null = stored) {
  return decideChange(before, { ...report, ...differences }, NOW)?.after ?? null;
}

describe("a report of an automation", () => {
  test("creates it if there is none, as of the report's time or now", () => {
    expect(resultOf({}, null)).toEqual({ ...stored, updatedAt: NOW, createdAt: NOW });
    expect(resultOf({ updatedAt: 7 }, null)).toEqual({ ...stored, updatedAt: 7, createdAt: NOW });
  });

  test("creates it anew if it was removed", () => {
    const change = decideChange({ ...stored, removedAt: 600 }, report, NOW);
    expect(change).toMatchObject({ isNew: true, after: { createdAt: NOW, removedAt: null } });
  });

  test("creates it anew only if it is not older than the removal and the last change before it", () => {
    const removed = { ...stored, removedAt: 600 };
    expect(resultOf({ updatedAt: 599 }, removed)).toBeNull();
    expect(resultOf({ updatedAt: 600 }, removed)).toMatchObject({ updatedAt: 600 });
    const ahead = { ...removed, updatedAt: 700 };
    expect(resultOf({ updatedAt: 699 }, ahead)).toBeNull();
    expect(resultOf({ updatedAt: 700 }, ahead)).toMatchObject({ updatedAt: 700 });
  });

  test("without a time creates it anew, dated later than the removal, whatever clocks say", () => {
    const removed = { ...stored, removedAt: NOW + 5 };
    expect(resultOf({}, removed)).toMatchObject({ updatedAt: NOW + 6, removedAt: null });
  });

  test("that says what is stored changes nothing", () => {
    expect(resultOf({})).toBeNull();
    expect(resultOf({ updatedAt: 500 })).toBeNull();
  });

  test("that is older than what is stored changes nothing", () => {
    expect(resultOf({ updatedAt: 499, status: "paused" })).toBeNull();
  });

  test("that is newer sets its time, even if nothing else differs", () => {
    expect(resultOf({ updatedAt: 501 })).toEqual({ ...stored, updatedAt: 501 });
  });

  test("that differs wins over one with the same time", () => {
    expect(resultOf({ updatedAt: 500, name: "M" })).toEqual({ ...stored, name: "M" });
  });

  test("that is newer applies, even if both are from before 1970", () => {
    const early = { ...stored, updatedAt: -500 };
    expect(resultOf({ updatedAt: -499 }, early)).toEqual({ ...stored, updatedAt: -499 });
    expect(resultOf({ updatedAt: -501 }, early)).toBeNull();
  });

  test("without a time is dated later than what is stored, whatever clocks say", () => {
    expect(resultOf({ status: "paused" })?.updatedAt).toBe(NOW);
    const ahead = { ...stored, updatedAt: NOW + 5 };
    expect(resultOf({ status: "paused" }, ahead)?.updatedAt).toBe(NOW + 6);
    const last = { ...stored, updatedAt: LATEST_TIME_MS };
    expect(resultOf({ status: "paused" }, last)?.updatedAt).toBe(LATEST_TIME_MS);
  });
});

import { describe, expect, test } from "vitest";
import {
  decideChange,
  type WantedAutomation,
} from "../../../src/recording/automation-recording.ts";
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
  reportedAt: "latest",
};
const times = { reportedAt: 500, updatedAt: 500, createdAt: 100, removedAt: null };
const stored: AutomationRow = { ...report, ...times };

/** The stored automation after a report; null if it changes nothing. */
function resultOf(differences: Partial<WantedAutomation>, before: AutomationRow | null = stored) {
  return decideChange(before, { ...report, ...differences }, NOW)?.after ?? null;
}

describe("a report of an automation", () => {
  test("creates it if there is none, as of the report's time or now", () => {
    const dated = (at: number) => ({ ...stored, reportedAt: at, updatedAt: at, createdAt: NOW });
    expect(resultOf({}, null)).toEqual(dated(NOW));
    expect(resultOf({ reportedAt: 7 }, null)).toEqual(dated(7));
  });

  test("creates it anew if it was removed", () => {
    const change = decideChange({ ...stored, removedAt: 600 }, report, NOW);
    expect(change).toMatchObject({ isNew: true, after: { createdAt: NOW, removedAt: null } });
  });

  test("creates it anew only if it is not older than the removal and the last change before it", () => {
    const removed = { ...stored, removedAt: 600 };
    expect(resultOf({ reportedAt: 599 }, removed)).toBeNull();
    expect(resultOf({ reportedAt: 600 }, removed)).toMatchObject({ updatedAt: 600 });
    const ahead = { ...removed, reportedAt: 700, updatedAt: 703 };
    expect(resultOf({ reportedAt: 699 }, ahead)).toBeNull();
    expect(resultOf({ reportedAt: 700 }, ahead)).toMatchObject({ updatedAt: 704 });
  });

  test("without a time creates it anew, dated later than the removal, whatever clocks say", () => {
    const removed = { ...stored, removedAt: NOW + 5 };
    expect(resultOf({}, removed)).toMatchObject({ updatedAt: NOW + 6, removedAt: null });
  });

  test("that says what is stored changes nothing", () => {
    expect(resultOf({})).toBeNull();
    expect(resultOf({ reportedAt: 500 })).toBeNull();
  });

  test("that is older than what is stored changes nothing", () => {
    expect(resultOf({ reportedAt: 499, status: "paused" })).toBeNull();
    // Its time was made later, but a report of the same second is no older.
    const later = { ...stored, updatedAt: 503 };
    expect(resultOf({ reportedAt: 500, status: "paused" }, later)?.updatedAt).toBe(504);
  });

  test("that is newer sets its time, even if nothing else differs", () => {
    expect(resultOf({ reportedAt: 501 })).toEqual({ ...stored, reportedAt: 501, updatedAt: 501 });
    const later = { ...stored, updatedAt: 503 };
    expect(resultOf({ reportedAt: 501 }, later)).toEqual({ ...later, reportedAt: 501 });
  });

  test.each<Partial<WantedAutomation>>([
    { type: "lead_ads" },
    { provider: "instagram" },
    { agentId: "agt_2" },
    { agentName: "B" },
    { name: "M" },
    { status: "paused" },
  ])("that differs in %j alone wins over one with the same time", (difference) => {
    const after = { ...stored, ...difference, updatedAt: 501 };
    expect(resultOf({ reportedAt: 500, ...difference })).toEqual(after);
  });

  test("that is newer applies, even if both are from before 1970", () => {
    const early = { ...stored, reportedAt: -500, updatedAt: -500 };
    const after = { ...stored, reportedAt: -499, updatedAt: -499 };
    expect(resultOf({ reportedAt: -499 }, early)).toEqual(after);
    expect(resultOf({ reportedAt: -501 }, early)).toBeNull();
  });

  test("without a time is dated later than what is stored, whatever clocks say", () => {
    expect(resultOf({ status: "paused" })?.updatedAt).toBe(NOW);
    const ahead = { ...stored, reportedAt: NOW + 4, updatedAt: NOW + 5 };
    const at = NOW + 6;
    expect(resultOf({ status: "paused" }, ahead)).toMatchObject({ reportedAt: at, updatedAt: at });
  });
});

import { describe, expect, test } from "vitest";
import type { Page as PageOf } from "../../../../src/http/paging.ts";
import type { Automation } from "../../../../src/records/automations.ts";
import {
  EMPTY_PAGE,
  openWorkspace,
  recordAutomation,
  refusal,
  success,
} from "../../../support/api.ts";

const NOT_FOUND = refusal(404, "automation_not_found");

type Page = PageOf<Automation>;

describe("GET /automations/{id}", () => {
  test("returns one automation, with exactly the fields of the contract", async () => {
    const { workspaceId, api } = await openWorkspace();
    const id = await recordAutomation(workspaceId, {
      type: "social_story",
      provider: "instagram",
      agent: { reference: "agent-7", name: "Chloé & Fils" },
      status: "paused",
      updatedAt: "2026-03-14T10:26:53.589+01:00",
    });
    expect(id).toMatch(/^aut_[0-9a-z]+$/);
    expect(await api.get(`/v1/automations/${id}`)).toEqual(
      success(200, {
        id,
        name: "Réponse aux stories – Chloé & Fils",
        type: "social_story",
        provider: "instagram",
        agent_id: expect.stringMatching(/^agt_[0-9a-z]+$/),
        agent_name: "Chloé & Fils",
        status: "paused",
        updated_at: "2026-03-14T09:26:53.589Z",
      }),
    );
  });

  test("returns a CRM automation with the name and provider that were reported, and controls it", async () => {
    const { workspaceId, api } = await openWorkspace();
    const crm = { type: "crm_source", provider: "HubSpot 🧡", name: "Relance des devis" } as const;
    const id = await recordAutomation(workspaceId, crm);
    const path = `/v1/automations/${id}`;
    expect((await api.get(path)).body).toMatchObject({ id, ...crm });
    const paused = await api.patch(path, { status: "paused" });
    expect(paused.body).toMatchObject({ id, ...crm, status: "paused" });
  });

  test("answers 404 for an id with another prefix or in another case", async () => {
    const { workspaceId, api } = await openWorkspace();
    const id = await recordAutomation(workspaceId);
    for (const other of [id.slice(4), `lea_${id.slice(4)}`, id.toUpperCase(), `${id}0`, `${id}%20`])
      expect(await api.get(`/v1/automations/${other}`), other).toEqual(NOT_FOUND);
  });
});

describe("GET /automations", () => {
  test("returns the workspace's automations in the pagination envelope, each as by its id", async () => {
    const { workspaceId, api } = await openWorkspace();
    const ids: string[] = [];
    for (const status of ["active", "paused", "draft", "error"] as const)
      ids.push(await recordAutomation(workspaceId, { status }));
    const each = await Promise.all(
      ids.map(async (id) => (await api.get(`/v1/automations/${id}`)).body),
    );
    const page = await api.get<Page>("/v1/automations");
    expect(page).toEqual(success(200, { ...EMPTY_PAGE, data: expect.any(Array) }));
    expect(new Set(page.body.data)).toEqual(new Set(each));
  });

  test("returns them newest first by creation, whatever changed since", async () => {
    const { workspaceId, api } = await openWorkspace();
    const ids: string[] = [];
    for (let i = 0; i < 3; i++) {
      ids.push(await recordAutomation(workspaceId));
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
    await api.patch(`/v1/automations/${ids[0]}`, { status: "paused" });
    const { body } = await api.get<Page>("/v1/automations");
    expect(body.data.map(({ id }) => id)).toEqual(ids.toReversed());
  });
});

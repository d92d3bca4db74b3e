import { exports } from "cloudflare:workers";
import { beforeAll, describe, expect, test } from "vitest";
import {
  type Answer,
  automationReport,
  leadReport,
  openWorkspace,
  runReport,
  send,
  withoutRateLimit,
} from "../../support/api.ts";
import { operationsOf } from "../../support/document.ts";

const { body: document } = await send<object>("/openapi.json");
const operations = operationsOf(document);
const withId = operations.filter(({ path }) => path.includes("{id}"));
const lists = operations.filter(({ parameters }) =>
  parameters.some(({ name }) => name === "cursor"),
);

/** A valid body for each operation; an operation missing here fails its test. */
const BODIES: Record<string, object | null> = {
  getAutomation: null,
  controlAutomation: { status: "paused" },
  listRunsOfAutomation: null,
  deleteWebhook: null,
};

/** A workspace with three of everything; its people and ids contain its name. */
async function openFilledWorkspace() {
  const workspace = await openWorkspace();
  const { workspaceId, api } = workspace;
  const automations = ["a", "b", "c"].map((reference) =>
    automationReport(reference, { agent: { reference, name: `Canari ${workspaceId}` } }),
  );
  const { ids } = await exports.Platform.recordAutomations({ workspaceId, automations });
  const leads = ["a", "b", "c"].map((name) => leadReport(name, { name: `Canari ${workspaceId}` }));
  await exports.Platform.recordLeads({ workspaceId, leads });
  const runs = ["a", "b", "c"].map((reference) => runReport(reference, ids[0] as string));
  await exports.Platform.recordRuns({ workspaceId, runs });
  let webhookId = "";
  for (const name of ["a", "b", "c"]) {
    const url = `https://ok-${name}.example/${workspaceId}`;
    const { body } = await api.post<{ id: string }>("/v1/webhooks", {
      url,
      events: ["run.completed"],
    });
    webhookId = body.id;
  }
  return { ...workspace, automationId: ids[0] as string, webhookId };
}

let own: Awaited<ReturnType<typeof openFilledWorkspace>>;
let foreign: Awaited<ReturnType<typeof openFilledWorkspace>>;

beforeAll(async () => {
  own = await openFilledWorkspace();
  foreign = await openFilledWorkspace();
});

test("the document has routes with ids and lists, so that there is something to test", () => {
  expect(withId.length).toBeGreaterThanOrEqual(4);
  expect(lists.length).toBeGreaterThanOrEqual(5);
});

describe("another workspace's id is answered byte for byte like an unknown one", () => {
  test.each(withId)("by $operationId", async ({ operationId, method, path }) => {
    expect(Object.keys(BODIES)).toContain(operationId);
    const [kind, foreignId] = path.includes("webhooks")
      ? ["whk_", foreign.webhookId]
      : ["aut_", foreign.automationId];
    const ask = async (id: string): Promise<Answer> => {
      const body = BODIES[operationId];
      return own.api.send(path.replace("{id}", id), {
        method: method.toUpperCase(),
        headers: { "Content-Type": "application/json" },
        ...(body ? { body: JSON.stringify(body) } : {}),
      });
    };
    const unknown = await ask(kind + "0".repeat(25));
    expect(unknown.status).toBe(404);
    expect(withoutRateLimit(await ask(foreignId))).toEqual(withoutRateLimit(unknown));
    expect(withoutRateLimit(await ask("nothing-of-ours"))).toEqual(withoutRateLimit(unknown));
  });
});

describe("a cursor of another workspace shows nothing of it", () => {
  test.each(lists)("in $operationId", async ({ path }) => {
    const at = (id: string, cursor = "") => `${path.replace("{id}", id)}?limit=2&cursor=${cursor}`;
    const theirs = await foreign.api.get<{ next_cursor: string; data: { id: string }[] }>(
      at(foreign.automationId),
    );
    expect(theirs.body.data).toHaveLength(2);
    const rest = await foreign.api.get<{ data: { id: string }[] }>(
      at(foreign.automationId, theirs.body.next_cursor),
    );
    expect(rest.body.data.length).toBeGreaterThan(0);
    const answer = await own.api.get(at(own.automationId, theirs.body.next_cursor));
    const text = JSON.stringify(answer.body);
    for (const secret of [foreign.workspaceId, ...rest.body.data.map(({ id }) => id)])
      expect(text).not.toContain(secret);
  });
});

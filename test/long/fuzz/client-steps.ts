import fc from "fast-check";
import { expect } from "vitest";
import { WebhookEvent } from "../../../src/contract/enumerations.ts";
import {
  type Cursor,
  isBehind,
  itemsIn,
  type Key,
  listsOf,
  type Model,
  type Workspace,
} from "./model.ts";
import { expectRefusal, type Service } from "./service.ts";
import { between, ownerOf, pick, some, someKey, someOwner, someWorkspace, step } from "./step.ts";

const SUBSCRIPTIONS_MAX = 20;

const keyOf = (model: Model, index: number): Key => pick(model.keys, index);

/** The id of an automation that exists, or of none. */
function automationOf({ automations }: Workspace, which: number): string {
  return automations.length > 0 ? pick(automations, which).id : `aut_${"0".repeat(25)}`;
}

const someAutomation = { by: someKey, owner: someOwner, which: some };
type Wanted = { by: number; owner: string; which: number };

/** Asks for an automation, or changes its status: the answer must be what the model expects. */
async function askFor(
  model: Model,
  service: Service,
  { by, owner, which }: Wanted,
  body?: { status: string },
): Promise<void> {
  const key = keyOf(model, by);
  const id = automationOf(ownerOf(model, key, owner), which);
  const from = Date.now();
  const request = body ? ({ method: "PATCH", body } as const) : ({ method: "GET" } as const);
  const [answer] = await service.ask(model, key, { ...request, path: `automations/${id}` });
  if (!answer) return;
  const item = key.workspace.automations.find((item) => item.id === id);
  if (!item) return expectRefusal(answer, 404, "automation_not_found");
  const { status } = item.shown;
  if (body && (status === "draft" || status === "error"))
    return expectRefusal(answer, 422, "automation_not_controllable", { status });
  if (body && status !== body.status)
    item.shown = { ...item.shown, ...body, updated_at: between(from, Date.now()) };
  expect({ status: answer.status, body: answer.body }).toEqual({ status: 200, body: item.shown });
  item.shown = answer.body as typeof item.shown;
}

const getAutomation = step("getAutomation", fc.record(someAutomation), askFor);

const controlAutomation = step(
  "controlAutomation",
  fc.record({ ...someAutomation, status: fc.constantFrom("active", "paused") }),
  (model, service, { status, ...wanted }) => askFor(model, service, wanted, { status }),
);

const someEvents = fc.array(fc.constantFrom(...WebhookEvent.options), {
  minLength: 1,
  maxLength: 4,
});

/** A factory for steps, because subscribers' addresses are only known once they listen. */
const createWebhooks = (url: string) =>
  step(
    "createWebhooks",
    fc.record({
      by: someKey,
      events: someEvents,
      times: fc.constantFrom(1, 3, SUBSCRIPTIONS_MAX + 1),
    }),
    async (model, service, { by, events, times }) => {
      const key = keyOf(model, by);
      const { webhooks } = key.workspace;
      const from = Date.now();
      const request = { method: "POST", path: "webhooks", body: { url, events } } as const;
      const answers = await service.ask(model, key, request, times);
      const created = answers.filter(({ status }) => status === 201);
      const room = SUBSCRIPTIONS_MAX - webhooks.length;
      expect(created).toHaveLength(Math.min(answers.length, room));
      for (const answer of answers) {
        if (answer.status !== 201) {
          service.note("subscription_limit_reached");
          const reason = "subscription_limit_reached";
          expectRefusal(answer, 400, "invalid_request", { reason, max: SUBSCRIPTIONS_MAX });
          continue;
        }
        const { secret, ...shown } = answer.body as {
          id: string;
          secret: string;
          created_at: string;
        };
        expect(secret).toMatch(/^whsec_/);
        expect(shown).toEqual({
          id: expect.stringMatching(/^whk_/),
          url,
          events: [...new Set(events)],
          created_at: between(from, Date.now()),
          disabled_at: null,
        });
        webhooks.push({ at: Date.parse(shown.created_at), id: shown.id, shown });
      }
    },
  );

const deleteWebhook = step(
  "deleteWebhook",
  fc.record({
    ...{ by: someKey, owner: someOwner, which: some },
    deleted: fc.constantFrom(false, false, true),
    times: fc.integer({ min: 1, max: 2 }),
  }),
  async (model, service, { by, owner, which, deleted, times }) => {
    const key = keyOf(model, by);
    const { workspace } = key;
    const id = pick(webhooksOf(model, key, owner, deleted), which);
    const request = { method: "DELETE", path: `webhooks/${id}` } as const;
    const answers = await service.ask(model, key, request, times);
    const exists = answers.length > 0 && workspace.webhooks.some((item) => item.id === id);
    const done = answers.filter(({ status }) => status === 204);
    expect(done).toHaveLength(exists ? 1 : 0);
    for (const answer of answers)
      if (!done.includes(answer)) expectRefusal(answer, 404, "webhook_not_found");
    if (!exists) return;
    workspace.webhooks = workspace.webhooks.filter((item) => item.id !== id);
    workspace.deleted.push(id);
    model.forget(new Set([id]));
  },
  (model, { by, owner, deleted }) => webhooksOf(model, keyOf(model, by), owner, deleted).length > 0,
);

/** Ids of subscriptions that exist or did. */
function webhooksOf(model: Model, key: Key, owner: string, deleted: boolean): string[] {
  const workspace = ownerOf(model, key, owner);
  return deleted ? workspace.deleted : workspace.webhooks.map(({ id }) => id);
}

/** Reads one page, which must match the model exactly; null if it was refused. */
async function readPage(
  model: Model,
  service: Service,
  key: Key,
  list: string,
  limit: number | null,
  cursor: Cursor | null,
) {
  const query = new URLSearchParams({
    ...(limit === null ? {} : { limit: String(limit) }),
    ...(cursor === null ? {} : { cursor: cursor.text }),
  });
  const [answer] = await service.ask(model, key, { method: "GET", path: `${list}?${query}` });
  if (!answer) return null;
  if (cursor && cursor.list !== list) {
    const details = { parameter: "cursor", reason: "unreadable" } as const;
    expectRefusal(answer, 400, "invalid_request", details);
    return null;
  }
  const all = itemsIn(key.workspace, list);
  if (!all) {
    expectRefusal(answer, 404, "automation_not_found");
    return null;
  }
  const rest = cursor ? all.filter((item) => isBehind(item, cursor)) : all;
  const items = rest.slice(0, limit ?? 25);
  const more = rest.length > items.length;
  const body = {
    data: items.map(({ shown }) => shown),
    has_more: more,
    next_cursor: more ? expect.any(String) : null,
  };
  expect({ status: answer.status, body: answer.body }).toEqual({ status: 200, body });
  const { data, next_cursor } = answer.body as { data: typeof body.data; next_cursor: string };
  // What was known to lie between two times is now known exactly.
  for (const [i, item] of items.entries()) item.shown = data[i] ?? item.shown;
  const last = items.at(-1);
  const next = more && last ? { list, text: next_cursor, at: last.at, id: last.id } : null;
  if (next) model.cursors.push(next);
  return { ids: items.map(({ id }) => id), next };
}

const someLimit = fc.option(fc.oneof(fc.integer({ min: 1, max: 6 }), fc.constant(100)));

const readList = step(
  "readList",
  fc.record({ by: someKey, owner: someOwner, list: some, limit: someLimit }),
  async (model, service, { by, owner, list, limit }) => {
    const key = keyOf(model, by);
    const name = pick(listsOf(ownerOf(model, key, owner)), list);
    await readPage(model, service, key, name, limit, null);
  },
);

/** Follows any past cursor, of any owner, in its own list or in another. */
const follow = step(
  "follow",
  fc.record({ by: someKey, cursor: some, list: fc.option(some), limit: someLimit }),
  async (model, service, { by, cursor, list, limit }) => {
    const key = keyOf(model, by);
    const given = pick(model.cursors.slice(-10), cursor);
    const name = list === null ? given.list : pick(listsOf(key.workspace), list);
    await readPage(model, service, key, name, limit, given);
  },
  (model) => model.cursors.length > 0,
);

/**
 * Reads the next page of the current walk, or the first page of a new one. At the end of a walk,
 * everything that existed at its start must have been shown, and nothing twice.
 */
const walk = step(
  "walk",
  fc.record({ by: someWorkspace, list: some, limit: fc.integer({ min: 1, max: 6 }) }),
  async (model, service, { by, list, limit }) => {
    const current = model.walk ?? begin(keyOf(model, by), list);
    const page = await readPage(
      ...([model, service, current.key, current.list, limit, current.cursor] as const),
    );
    if (!page) {
      if (!itemsIn(current.key.workspace, current.list)) model.walk = null;
      return;
    }
    current.seen.push(...page.ids);
    current.cursor = page.next;
    model.walk = page.next ? current : null;
    if (page.next) return;
    expect(current.seen.filter((id, i) => current.seen.indexOf(id) !== i)).toEqual([]);
    expect([...current.there].filter((id) => !current.seen.includes(id))).toEqual([]);
    if (current.seen.length > limit) service.note("a walk over pages");
  },
);

function begin(key: Key, index: number) {
  const list = pick(listsOf(key.workspace), index);
  const there = new Set(itemsIn(key.workspace, list)?.map(({ id }) => id));
  return { key, list, there, seen: [] as string[], cursor: null };
}

/** What clients do; their subscribers listen at `url`. */
export function clientSteps(url: string) {
  return [
    ...[getAutomation, controlAutomation, controlAutomation],
    ...[createWebhooks(url), createWebhooks(url), deleteWebhook, deleteWebhook, deleteWebhook],
    ...[readList, follow, follow, walk, walk, walk, walk, walk, walk],
  ];
}

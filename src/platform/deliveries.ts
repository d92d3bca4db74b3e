import { z } from "@hono/zod-openapi";
import { encodeCursor } from "../contract/cursor.ts";
import {
  DeliveryStateFilter,
  RedeliveryState,
  StatusClass,
  WebhookEvent,
} from "../contract/enumerations.ts";
import {
  EventId,
  Instant,
  LeadId,
  ReplayId,
  several,
  WebhookId,
  WorkspaceId,
} from "../contract/fields.ts";
import {
  LEAD_SEARCH_MAX_LENGTH,
  PAGE_LIMIT,
  REPLAYS_MAX,
  RESENDS_PENDING_MAX,
} from "../contract/limits.ts";
import type { Database } from "../db/client.ts";
import { DELIVERIES_EXAMINED_MAX, listDeliveriesOf } from "../history/deliveries.ts";
import { findDelivery } from "../history/delivery.ts";
import {
  countFailuresOf,
  FAILURES_EXAMINED_MAX,
  FAILURES_LIMIT_MAX,
  FailureState,
  listFailuresOf,
} from "../history/failing.ts";
import {
  Backlog,
  findBacklog,
  findLedger,
  Ledger,
  sumBacklogs,
  sumLedgers,
} from "../history/ledger.ts";
import {
  DeliveryDetails,
  DeliveryView,
  FailureCount,
  FailureView,
  Redelivered,
} from "../history/views.ts";
import { text } from "../primitives/text.ts";
import { timeBudget } from "../primitives/timing.ts";
import { SEARCHED_MAX } from "../records/finding.ts";
import { inactiveWebhook, REDELIVERY_EXAMINED_MAX, sendAgain } from "../replay/replay.ts";
import { findReplay, listReplaysOf, stop, toReplayView } from "../replay/replays.ts";
import { allPlacements } from "../workspaces/placement.ts";
import { ReplayView } from "../workspaces/views.ts";
import {
  cursorOf,
  DatabaseName,
  integer,
  Nothing,
  pageAfter,
  pageOf,
  RedeliverableSince,
  toPage,
} from "./fields.ts";
import { operation } from "./operation.ts";
import { expectDatabase, expectWorkspace, findWebhook } from "./placements.ts";
import { advanceReplay, showReplayed } from "./replaying.ts";

const workspaceId = "wks_…";
const webhookId = "whk_…";
const eventId = "evt_…";

const StatusFilter = z.union([integer(100, 599), StatusClass]);

/** The filters of a list of deliveries, besides their state. */
const FILTERS = {
  type: WebhookEvent.nullish(),
  status: StatusFilter.nullish().describe(
    "the status of the last attempt's response, or its class, such as 5xx; none: the endpoint did not respond",
  ),
  since: Instant.nullish().describe("events recorded from this time on"),
  until: Instant.nullish().describe("and before this time"),
};

/** The filters of a list that name what its deliveries are about. */
const NAMED = {
  eventId: EventId.nullish().describe("this event only"),
  leadId: LeadId.nullish().describe("only the event of this lead: lea_…"),
  lead: text(LEAD_SEARCH_MAX_LENGTH)
    .min(1)
    .nullish()
    .describe(
      `only the events of these leads: a name, an e-mail address or a part of either, or a phone number. A page searches up to ${SEARCHED_MAX} leads, newest first, so it may be empty and still have a next one`,
    ),
};

export const listDeliveries = operation({
  about: `Lists a webhook's deliveries, newest first. A filtered page examines ${DELIVERIES_EXAMINED_MAX} at most, so it may be empty and still have a next one.`,
  input: z.strictObject({
    webhookId: WebhookId,
    state: DeliveryStateFilter.nullish().describe("waiting: pending or retrying"),
    ...FILTERS,
    ...NAMED,
    limit: integer(PAGE_LIMIT.min, PAGE_LIMIT.max)
      .nullish()
      .describe(`default: ${PAGE_LIMIT.default}`),
    cursor: cursorOf("deliveries"),
  }),
  output: pageOf(DeliveryView),
  examples: [
    { webhookId, state: "exhausted", limit: 100 },
    { webhookId, status: "5xx", since: "2026-11-01T00:00:00Z" },
    { webhookId, eventId },
    { webhookId, leadId: "lea_…" },
  ],
  async run(call, { webhookId, limit, cursor, ...filter }) {
    const { db } = await findWebhook(call, webhookId);
    const request = pageAfter(cursor, limit ?? PAGE_LIMIT.default);
    return toPage("deliveries", await listDeliveriesOf(db, call.env, webhookId, filter, request));
  },
});

/** The filters of lists and counts of failures. */
const FAILURE_FILTERS = {
  webhookId: WebhookId.nullish().describe("default: all webhooks"),
  state: FailureState.nullish().describe("default: both"),
  ...FILTERS,
};

export const listFailures = operation({
  about: `Lists the deliveries of all webhooks of a workspace that are retrying or exhausted, newest event first. A page has all failures of its events. A filtered one examines about ${FAILURES_EXAMINED_MAX} deliveries at most, so it may be empty and still have a next one.`,
  input: z.strictObject({
    workspaceId: WorkspaceId,
    ...FAILURE_FILTERS,
    ...NAMED,
    limit: integer(PAGE_LIMIT.min, FAILURES_LIMIT_MAX)
      .nullish()
      .describe(`number of events; default: ${PAGE_LIMIT.default}`),
    cursor: cursorOf("failures"),
  }),
  output: pageOf(FailureView),
  examples: [
    { workspaceId, webhookId, state: "exhausted" },
    { workspaceId, lead: "Camille Durand" },
    { workspaceId, eventId },
    { workspaceId, leadId: "lea_…" },
  ],
  async run({ env, placement }, { workspaceId, limit, cursor, ...filter }) {
    const { db } = placement ?? (await expectWorkspace(env, workspaceId));
    const request = pageAfter(cursor, limit ?? PAGE_LIMIT.default);
    return toPage("failures", await listFailuresOf(db, env, workspaceId, filter, request));
  },
});

export const countFailures = operation({
  about: `Counts what listFailures lists, by webhook, among about ${FAILURES_EXAMINED_MAX} of the newest.`,
  input: z.strictObject({ workspaceId: WorkspaceId, ...FAILURE_FILTERS }),
  output: z.object({ items: z.array(FailureCount) }),
  examples: [{ workspaceId }, { workspaceId, webhookId, status: "5xx" }],
  async run({ env, placement }, { workspaceId, ...filter }) {
    const { db } = placement ?? (await expectWorkspace(env, workspaceId));
    return { items: await countFailuresOf(db, workspaceId, filter) };
  },
});

export const readDelivery = operation({
  about: "Shows a delivery, its attempts with their responses, and the exact body.",
  input: z.strictObject({ webhookId: WebhookId, eventId: EventId }),
  output: DeliveryDetails,
  examples: [{ webhookId, eventId }],
  async run(call, { webhookId, eventId }) {
    const { db } = await findWebhook(call, webhookId);
    return findDelivery(db, call.env, webhookId, eventId);
  },
});

export const redeliver = operation({
  about: `Delivers events again, even delivered ones, with the same event ids. Each call examines up to ${REDELIVERY_EXAMINED_MAX} events of a range. Call it until nextCursor is null, as the command in a terminal does.`,
  input: z
    .strictObject({
      webhookId: WebhookId,
      eventIds: several(EventId)
        .nullish()
        .describe(
          `the events to resend, at once and first, even while the endpoint fails or \`Retry-After\` asks for a delay; at most ${RESENDS_PENDING_MAX} may be pending for the webhook`,
        ),
      since: RedeliverableSince.nullish().describe("or all events from this time on"),
      until: Instant.nullish().describe("and before this time; default: no end"),
      states: several(RedeliveryState, RedeliveryState.options.length)
        .nullish()
        .describe(
          "default: all; delivered: at least once; missed: stored while the webhook was disabled or did not list the type, or its workspace had no access (what no webhook of the workspace listed was never stored); retrying: failed, and pending. Deliveries that were never tried are sent anyway, and not counted",
        ),
      type: WebhookEvent.nullish().describe("of the range, only events of this type"),
      status: StatusFilter.nullish().describe(
        "of the range, only deliveries whose last attempt had this status, as in listDeliveries",
      ),
      cursor: cursorOf("redelivery").describe("the previous call's nextCursor"),
      dryRun: z
        .boolean()
        .nullish()
        .describe("counts the events that would be sent, and sends nothing"),
    })
    .superRefine(({ eventIds, since, until, states, type, status, cursor }, context) => {
      const fault = (path: string, message: string, reason: string) =>
        context.addIssue({ code: "custom", path: [path], message, params: { reason } });
      if (eventIds == null && since == null)
        return fault("eventIds", "expected either eventIds or since", "required");
      if (eventIds == null) return;
      for (const [name, value] of Object.entries({ since, until, states, type, status, cursor }))
        if (value != null) fault(name, "cannot be combined with eventIds", "unknown_property");
    }),
  output: Redelivered,
  examples: [
    { webhookId, eventIds: [eventId] },
    { webhookId, since: "2026-11-01T00:00:00Z", states: ["exhausted", "cancelled"] },
  ],
  async run(call, { webhookId, eventIds, since, until, states, type, status, cursor, dryRun }) {
    const now = Date.now();
    const placement = await findWebhook(call, webhookId);
    // A range is one change, however many calls it takes.
    if (!dryRun && cursor == null) await call.noteChange?.({ webhookId });
    if (!dryRun && cursor != null) return advanceReplay(call, placement, webhookId, cursor.id, now);
    const range = {
      since: since ?? now,
      until: until ?? null,
      states: states ?? RedeliveryState.options,
      type: type ?? null,
      status: status ?? null,
      after: cursor ?? null,
    };
    const wanted = { ...(eventIds ? { eventIds } : range), dryRun: dryRun === true };
    const sent = await sendAgain(placement.db, webhookId, wanted, now);
    if (!sent) throw inactiveWebhook();
    const { count, next, replayId, notStored = [] } = sent;
    if (count === 0 && next === null) await call.noteChange?.(null);
    else if (replayId) await call.noteChange?.({ webhookId, after: { replayId } });
    if (!dryRun) return showReplayed(call, placement, webhookId, sent);
    const nextCursor = next && encodeCursor("redelivery", next);
    return { count, nextCursor, ...(notStored.length > 0 && { notStored }) };
  },
});

export const listReplays = operation({
  about: `Lists the last ${REPLAYS_MAX} replays of a webhook, newest first: the ranges that \`redeliver\` and \`enableWebhook\` have sent again, and what became of their deliveries.`,
  input: z.strictObject({ webhookId: WebhookId }),
  output: z.object({ items: z.array(ReplayView) }),
  examples: [{ webhookId }],
  async run(call, { webhookId }) {
    const { db } = await findWebhook(call, webhookId);
    return { items: (await listReplaysOf(db, webhookId)).map(toReplayView) };
  },
});

/** How long a call that stops a replay restores its deliveries; the scheduled job does the rest. */
const STOPPING_MAX_MS = 10_000;

export const stopReplay = operation({
  about:
    "Stops a replay. What it has not sent yet gets its former state back; a request that is under way may still arrive.",
  input: z.strictObject({ webhookId: WebhookId, replayId: ReplayId }),
  output: Nothing,
  examples: [{ webhookId, replayId: "rpl_…" }],
  async run(call, { webhookId, replayId }) {
    const now = Date.now();
    const { db } = await findWebhook(call, webhookId);
    const replay = await findReplay(db, webhookId, replayId, "replayId");
    if (replay.result === null) await call.noteChange?.({ webhookId });
    await stop(db, replay, now, timeBudget(STOPPING_MAX_MS));
    return {};
  },
});

const ofAnyWorkspace = z.strictObject({
  workspaceId: WorkspaceId.nullish().describe("default: all workspaces"),
  database: DatabaseName.nullish().describe("binding of one database"),
});

/** Counts in the database of the workspace, in the named one, or in all of them. */
async function countIn<Counts>(
  env: Env,
  { workspaceId, database }: z.output<typeof ofAnyWorkspace>,
  count: (db: Database, workspaceId: string | undefined, now: number) => Promise<Counts>,
): Promise<Counts[]> {
  const placements =
    workspaceId != null
      ? [await expectWorkspace(env, workspaceId)]
      : database != null
        ? [expectDatabase(env, database)]
        : allPlacements(env);
  const now = Date.now();
  return Promise.all(placements.map(({ db }) => count(db, workspaceId ?? undefined, now)));
}

export const ledger = operation({
  about: "Counts deliveries by state.",
  input: ofAnyWorkspace,
  output: Ledger,
  examples: [{}, { workspaceId }],
  run: async ({ env }, input) => sumLedgers(await countIn(env, input, findLedger)),
});

export const backlog = operation({
  about: "Counts pending deliveries; cheaper than the ledger.",
  input: ofAnyWorkspace,
  output: Backlog,
  examples: [{}, { workspaceId }],
  run: async ({ env }, input) => sumBacklogs(await countIn(env, input, findBacklog)),
});

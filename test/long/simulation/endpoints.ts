import type { Chance } from "../../../scripts/shared/chance.ts";
import { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { checkRequest } from "./invariants.ts";
import type { Response as Answer } from "./scenarios.ts";
import type { Store } from "./store.ts";
import type { Isolate, World } from "./world.ts";

export const TYPES = WebhookEvent.options;

/** A request to an endpoint, as the network sees it. Times are true times, in Unix milliseconds. */
export interface Sent {
  eventId: string;
  type: WebhookEvent;
  subscriptionId: string;
  url: string;
  body: string;
  signature: string;
  isolate: Isolate;
  startedAt: number;
  /** Null while it is under way. */
  endedAt: number | null;
  /** What its sender received; null while it is under way. */
  answer: Answer | null;
  retryAfter: number;
  /** Whether somebody had resent the event, or replayed it. */
  byHand: "resend" | "replay" | null;
}

export function isAccepted({ answer }: Sent): boolean {
  return typeof answer === "number" && answer >= 200 && answer < 300;
}

/** How an endpoint answers a request. */
interface Reply {
  answer: Answer;
  /** In seconds. */
  retryAfter?: number | undefined;
  afterMs?: number;
}

/** What an endpoint knows of a request when it answers. */
interface Asked {
  chance: Chance;
  eventId: string;
  type: WebhookEvent;
  /** When the event was committed, and since when the endpoint behaves as it does. */
  committedAt: number;
  since: number;
  now: number;
  /** The number in the name of its host. */
  number: number;
}

/** In seconds; the longest that counts is half an hour. */
const RETRY_AFTERS = [0, 1, 59, 600, 1_800, 1_801, 86_400, 1e9];
const REJECTIONS = [301, 400, 404, 410, 500];

/** How the endpoint of a customer behaves; this changes over time. */
const BEHAVIOURS = {
  fine: ({ chance }) => ({ answer: chance.pick([200, 201, 204, 299]) }),
  slow: ({ chance }) => ({ answer: 200, afterMs: chance.between(1_000, 9_400) }),
  flaky: ({ chance }) => ({ answer: chance.pick([200, 500]) }),
  rejectsAll: ({ chance }) => ({ answer: chance.pick(REJECTIONS) }),
  rejectsOneInFive: ({ eventId }) => ({
    answer: eventId.charCodeAt(eventId.length - 1) % 5 === 0 ? 500 : 200,
  }),
  rejectsAType: (asked) => ({ answer: isOfItsType(asked) ? 422 : 200 }),
  rejectsTheOld: ({ committedAt, since }) => ({ answer: committedAt < since ? 422 : 200 }),
  busy: ({ chance }) => ({
    answer: chance.pick([429, 503]),
    retryAfter: chance.pick(RETRY_AFTERS),
  }),
  unreachable: () => ({ answer: "unreachable" }),
  hangs: () => ({ answer: "timed_out" }),
  // Its response may come after the time-out.
  stalls: ({ chance }) => ({ answer: 200, afterMs: chance.between(1, 60_000) }),
} satisfies Record<string, (asked: Asked) => Reply>;

/** How they also behave in harsh worlds. */
const HARSH_BEHAVIOURS = {
  ...BEHAVIOURS,
  accepts1MinuteIn150: ({ chance, now }) =>
    Math.floor(now / 60_000) % 150 === 0
      ? { answer: 200 }
      : { answer: chance.pick([400, 503, "unreachable"]) },
  failsAType: (asked) => {
    if (!isOfItsType(asked)) return { answer: 200 };
    const { chance } = asked;
    return {
      answer: chance.pick([429, 500, 503, "timed_out"]),
      retryAfter: chance.pick(RETRY_AFTERS),
    };
  },
} satisfies Record<string, (asked: Asked) => Reply>;

export type Behaviour = keyof typeof HARSH_BEHAVIOURS;

function isOfItsType({ type, number }: Asked): boolean {
  return type === TYPES[number % TYPES.length];
}

/** Resolves when the sender gives up. */
function timeOut(signal: AbortSignal | null | undefined): Promise<"timed_out"> {
  return new Promise((resolve) => signal?.addEventListener("abort", () => resolve("timed_out")));
}

/** The endpoints of all customers, each with a host of its own, and the requests to them. */
export function openEndpoints(world: World, store: Store) {
  const { chance } = world;
  const sent: Sent[] = [];
  const underWay = new Set<Sent>();
  /** How many requests each subscription has accepted. */
  const accepted = new Map<string, number>();
  /**
   * When the call returned that ended a subscription, or removed an event type or a URL from one (`id`, `id type`,
   * `id URL`).
   */
  const endedAt = new Map<string, number>();
  const behaviours = new Map<string, Behaviour>();
  const since = new Map<string, number>();
  /** Endpoints that follow a script. */
  const scripts = new Map<string, (eventId: string, type: WebhookEvent) => Reply>();
  world.onFetch = receive;

  /** Opens an endpoint. @returns its host. */
  function open(behaviour: Behaviour): string {
    const host = `endpoint-${behaviours.size}.example`;
    behave(host, behaviour);
    return host;
  }

  function openScripted(script: (eventId: string, type: WebhookEvent) => Reply): string {
    const host = open("fine");
    scripts.set(host, script);
    return host;
  }

  function behave(host: string, behaviour: Behaviour): void {
    behaviours.set(host, behaviour);
    since.set(host, world.now);
  }

  function pickBehaviour(): Behaviour {
    const all = world.isHarsh ? HARSH_BEHAVIOURS : BEHAVIOURS;
    return chance.pick(Object.keys(all) as Behaviour[]);
  }

  function changeAll(): void {
    for (const host of behaviours.keys()) if (chance.happens(0.5)) behave(host, pickBehaviour());
    world.note(`endpoints are now ${[...behaviours.values()]}`);
  }

  /** Most of them recover. A few stay as they are: others must not wait for them. */
  function recover(): void {
    for (const host of behaviours.keys()) if (chance.happens(0.8)) behave(host, "fine");
  }

  function behaviourOf(url: string): Behaviour {
    return behaviours.get(new URL(url).host) ?? "fine";
  }

  async function receive(isolate: Isolate, url: string, init: RequestInit): Promise<Response> {
    const said = new Headers(init.headers);
    const eventId = said.get("webhook-id") ?? "";
    const subscriptionId = said.get("X-Service-Webhook") ?? "";
    await isolate.step();
    const [row] = store.rows<{ type: WebhookEvent; priority: number }>(
      "SELECT type, priority FROM deliveries WHERE event_id = ? AND subscription_id = ?",
      eventId,
      subscriptionId,
    );
    const { type = "lead.created", priority = 1 } = row ?? {};
    const byHand = priority === 0 ? "resend" : priority === 3 ? "replay" : null;
    const request: Sent = {
      ...{ eventId, type, subscriptionId, url, isolate, byHand },
      body: String(init.body),
      signature: said.get("X-Service-Signature") ?? "",
      startedAt: world.now,
      endedAt: null,
      answer: null,
      retryAfter: 0,
    };
    const earned = 1 + (accepted.get(subscriptionId) ?? 0);
    world.guard(() => checkRequest(store, request, underWay, earned, endedAt));
    sent.push(request);
    underWay.add(request);
    const reply = replyOf(new URL(url).host, eventId, type);
    request.answer = await Promise.race([timeOut(init.signal), deliver(reply)]);
    underWay.delete(request);
    if (isAccepted(request)) accepted.set(subscriptionId, 1 + (accepted.get(subscriptionId) ?? 0));
    request.endedAt = world.now;
    request.retryAfter = reply.retryAfter ?? 0;
    world.note(`${eventId} is sent to ${subscriptionId}: ${request.answer}`);
    await isolate.step();
    if (typeof request.answer !== "number") throw new Error("no response");
    const headers = reply.retryAfter === undefined ? {} : { "Retry-After": `${reply.retryAfter}` };
    return new Response(null, { status: request.answer, headers });
  }

  async function deliver({ answer, afterMs = chance.between(5, 500) }: Reply): Promise<Answer> {
    await (answer === "timed_out" ? new Promise(() => {}) : world.sleep(afterMs));
    return answer;
  }

  function replyOf(host: string, eventId: string, type: WebhookEvent): Reply {
    const script = scripts.get(host);
    if (script) {
      try {
        return script(eventId, type);
      } catch (error) {
        // The code under test would take it for a failed connection.
        world.fail(error);
        throw error;
      }
    }
    const committedAt = store.committedAt.get(eventId) ?? 0;
    const asked = { chance, eventId, type, committedAt, now: world.now };
    const behaviour = HARSH_BEHAVIOURS[behaviours.get(host) ?? "fine"];
    return behaviour({
      ...asked,
      since: since.get(host) ?? 0,
      number: Number(/\d+/.exec(host)),
    });
  }

  return {
    sent,
    endedAt,
    /** How many there are. */
    count: () => behaviours.size,
    pickHost: () => chance.pick([...behaviours.keys()]),
    open,
    openScripted,
    pickBehaviour,
    behaviourOf,
    changeAll,
    recover,
  };
}

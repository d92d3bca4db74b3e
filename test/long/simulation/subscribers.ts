import { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { POST_TIMEOUT_MS } from "../../../src/contract/limits.ts";
import { PRIORITY } from "../../../src/db/schema.ts";
import type { Outcome } from "../../../src/delivery/outcome.ts";
import type { PreparedDelivery, Target } from "../../../src/delivery/sender.ts";
import { checkPost, type Post } from "./invariants.ts";
import type { Store } from "./store.ts";
import { type Isolate, Violation, type World } from "./world.ts";

export const KINDS = WebhookEvent.options;

/** How a subscriber's server behaves; this changes over time. */
const BEHAVIOURS = [
  ...(["fine", "slow", "flaky", "poisoned", "error", "hang"] as const),
  ...(["unreachable", "stall", "overloaded", "choosy", "picky", "importing"] as const),
];
/** How servers also behave in harsh worlds. */
const HARSH_BEHAVIOURS = [...BEHAVIOURS, "fickle", "busy", "typed"] as const;
const STAYS: readonly Behaviour[] = ["slow", "choosy", "picky", "importing"];
/** Those who reject some events at once and accept others. */
const CHOOSY: readonly Behaviour[] = ["choosy", "picky", "importing", "poisoned", "typed"];
export type Behaviour = (typeof HARSH_BEHAVIOURS)[number];
/** A fickle server accepts for one minute in so many. */
const FICKLE_MINUTES = 150;
/** In seconds; the longest that counts is half an hour. */
export const RETRY_AFTERS = [null, 0, 1, 59, 600, 1_800, 1_801, 86_400, 1e9];
const CHOICES = ["choosy", "picky", "importing"] as const;
type Choice = (typeof CHOICES)[number];

/** An event that an endpoint is offered. */
export interface OfferedEvent {
  id: string;
  type: WebhookEvent;
  /** In true time. */
  committedAt: number;
}

/** How an endpoint responds: with a status at once, not at all, or not in time. */
export type Response = number | "unreachable" | "timed_out" | BusyResponse;
/** 429 or 503 with `Retry-After`. */
interface BusyResponse {
  status: number;
  retryAfterSeconds: number | null;
}
/** What an endpoint does that follows a script: its response to each event. */
export type Script = (event: OfferedEvent) => Response;

export type Subscribers = ReturnType<typeof openSubscribers>;

/** The subscribers' servers, each with a host of its own, and what was posted to them. */
export function openSubscribers(world: World, store: Store) {
  const { chance } = world;
  const posts: Post[] = [];
  /**
   * When subscriptions were withdrawn, and event types and URLs (`id type`, `id URL`) that were removed from one, and the
   * call that did it had returned.
   */
  const withdrawnAt = new Map<string, number>();
  /** When replays of ranges were requested, in worlds with one endpoint. */
  const replayedAt: number[] = [];
  /** How often each event was resent by its id, in such worlds. */
  const resends = new Map<string, number>();
  const behaviours = new Map<string, Behaviour>();
  const scripts = new Map<string, Script>();
  /** Servers that were choosy once. */
  const wereChoosy = new Set<string>();
  /** When each server began to behave as it does. */
  const acceptsSince = new Map<string, number>();
  /** The events that each picky server was offered, in order. */
  const offered = new Map<string, string[]>();

  /** Opens a server. @returns its host. */
  function open(behaviour: Behaviour): string {
    const host = `subscriber-${behaviours.size}.example`;
    behave(host, behaviour);
    return host;
  }

  /** How a server may behave in this world. */
  function pickBehaviour(): Behaviour {
    return chance.pick(world.isHarsh ? HARSH_BEHAVIOURS : BEHAVIOURS);
  }

  /** Picks the host of a server. */
  function pickHost(): string {
    return chance.pick([...behaviours.keys()]);
  }

  /** Opens a server that follows a script. @returns its host. */
  function openScripted(script: Script): string {
    const host = open("fine");
    scripts.set(host, script);
    return host;
  }

  function behave(host: string, behaviour: Behaviour): void {
    behaviours.set(host, behaviour);
    if (CHOOSY.includes(behaviour)) wereChoosy.add(host);
    acceptsSince.set(host, world.now);
  }

  function isFine(url: string): boolean {
    return behaviours.get(new URL(url).host) === "fine";
  }

  /** How its server rejects some events at once; null if it does not. */
  function choiceOf(url: string): Choice | null {
    const behaviour = behaviours.get(new URL(url).host);
    return CHOICES.find((choice) => choice === behaviour) ?? null;
  }

  /** Whether its server rejects some events, or did so once. */
  function isChoosy(url: string): boolean {
    return CHOOSY.includes(behaviours.get(new URL(url).host) ?? "fine");
  }
  function wasChoosy(url: string): boolean {
    return wereChoosy.has(new URL(url).host);
  }

  /** Whether its server answers immediately and accepts this event, though not every one. */
  function isAccepted(url: string, eventId: string): boolean {
    const choice = choiceOf(url);
    return choice !== null && !isRejected(new URL(url).host, choice, eventId);
  }

  /**
   * A choosy one always rejects one kind of events, a picky one every second event, and an importing one all
   * that was recorded before it began.
   */
  function isRejected(host: string, behaviour: Choice, eventId: string): boolean {
    if (behaviour === "picky") {
      const known = offered.get(host) ?? [];
      offered.set(host, known);
      if (!known.includes(eventId)) known.push(eventId);
      return known.indexOf(eventId) % 2 === 0;
    }
    if (behaviour === "importing")
      return (store.committedAt.get(eventId) ?? 0) < (acceptsSince.get(host) ?? 0);
    return isOfRejectedType(host, eventId);
  }

  function isOfRejectedType(host: string, eventId: string): boolean {
    const [event] = store.rows<{ type: string }>("SELECT type FROM events WHERE id = ?", eventId);
    return event?.type === KINDS[Number(/\d+/.exec(host)) % KINDS.length];
  }

  function changeWeather(): void {
    for (const host of behaviours.keys()) if (chance.happens(0.5)) behave(host, pickBehaviour());
    world.note(`subscribers are now ${[...behaviours.values()]}`);
  }

  /** Most of them recover. Slow ones stay slow: the others must not wait for them. So do those that reject some. */
  function recover(): void {
    for (const [host, behaviour] of behaviours)
      if (behaviour === "stall" || (!STAYS.includes(behaviour) && chance.happens(0.7)))
        behaviours.set(host, "fine");
  }

  /** The network and the subscriber's server, for one attempt. */
  function attempt(delivery: PreparedDelivery, target: Target, isolate: Isolate): Promise<Outcome> {
    return isolate.request(() => post(delivery, target, isolate));
  }

  async function post(
    delivery: PreparedDelivery,
    target: Target,
    isolate: Isolate,
  ): Promise<Outcome> {
    await isolate.step();
    const { eventId, subscriptionId } = delivery;
    const { host } = new URL(target.url);
    const { body } = await delivery.signed;
    const post: Post = {
      eventId,
      subscriptionId,
      url: target.url,
      body,
      isolate,
      startedAt: world.now,
      endedAt: null,
      acknowledged: false,
      isManual: delivery.priority === PRIORITY.manual,
      outcome: null,
    };
    world.guard(() => checkPost(store, post, posts, withdrawnAt));
    posts.push(post);
    const behaviour = behaviours.get(host) ?? "fine";
    const script = scripts.get(host);
    const outcome = script ? await follow(script, eventId) : await answer(host, behaviour, eventId);
    post.endedAt = world.now;
    post.outcome = outcome;
    post.acknowledged = outcome.kind === "answered" && outcome.status < 300;
    world.note(`post ${eventId} to ${subscriptionId} (${behaviour}): ${JSON.stringify(outcome)}`);
    await isolate.step();
    return outcome;
  }

  async function follow(script: Script, eventId: string): Promise<Outcome> {
    const [event] = store.rows<{ type: WebhookEvent }>(
      "SELECT type FROM events WHERE id = ?",
      eventId,
    );
    if (!event) throw new Violation(`${eventId} is posted, and does not exist`);
    const committedAt = store.committedAt.get(eventId) ?? 0;
    const response = script({ id: eventId, type: event.type, committedAt });
    await world.sleep(response === "timed_out" ? POST_TIMEOUT_MS : chance.between(5, 500));
    if (response === "timed_out") return { kind: "timed_out" };
    if (response === "unreachable") return { kind: "unreachable", status: null };
    if (typeof response === "object") return { kind: "answered", ...response };
    return { kind: "answered", status: response, retryAfterSeconds: null };
  }

  async function answer(host: string, behaviour: Behaviour, eventId: string): Promise<Outcome> {
    const answered = (status: number, retryAfterSeconds: number | null = null): Outcome => ({
      kind: "answered",
      status,
      retryAfterSeconds,
    });
    // A machine that stalls gets its answer long after its lease has ended.
    await world.sleep(behaviour === "stall" ? chance.between(1, 600_000) : chance.between(5, 500));
    switch (behaviour) {
      case "slow":
        await world.sleep(chance.between(1_000, 9_400));
        return answered(200);
      case "poisoned":
        // One event in five is always rejected.
        return answered(eventId.charCodeAt(eventId.length - 1) % 5 === 0 ? 500 : 200);
      case "choosy":
      case "picky":
      case "importing":
        return answered(isRejected(host, behaviour, eventId) ? 422 : 200);
      case "flaky":
        return answered(chance.happens(0.5) ? 200 : 500);
      case "error":
        return answered(chance.pick([301, 400, 404, 410, 500, 503]));
      case "overloaded":
        return answered(chance.pick([429, 503]), chance.between(0, 100_000));
      case "fickle":
        if (Math.floor(world.now / 60_000) % FICKLE_MINUTES === 0) return answered(200);
        if (chance.happens(0.3)) return { kind: "unreachable", status: null };
        return answered(chance.pick([400, 500, 503]));
      case "busy":
        return answered(chance.pick([429, 503]), chance.pick(RETRY_AFTERS));
      case "typed":
        if (!isOfRejectedType(host, eventId)) return answered(200);
        if (chance.happens(0.3)) await world.sleep(10_000);
        else return answered(chance.pick([429, 500, 503]), chance.pick(RETRY_AFTERS));
        return { kind: "timed_out" };
      case "unreachable":
        return { kind: "unreachable", status: null };
      case "hang":
        await world.sleep(10_000);
        return { kind: "timed_out" };
      case "stall":
        return chance.happens(0.5) ? answered(200) : { kind: "timed_out" };
      default:
        return answered(chance.pick([200, 201, 204, 299]));
    }
  }

  return {
    posts,
    withdrawnAt,
    replayedAt,
    resends,
    /** How many there are. */
    count: () => behaviours.size,
    open,
    pickBehaviour,
    pickHost,
    openScripted,
    isFine,
    isChoosy,
    wasChoosy,
    isAccepted,
    changeWeather,
    recover,
    attempt,
  };
}

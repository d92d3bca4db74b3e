import { ENCRYPTION_KEYS } from "../../../scripts/shared/runtime.ts";
import {
  bodyOf,
  EVENTS_WITH_BODIES,
  type EventWithBody,
} from "../../../scripts/shared/stored-bodies.ts";
import { makeBody } from "../../../src/webhooks/bodies.ts";
import type { Target } from "../../../src/webhooks/dispatch/pipeline.ts";
import type { Claimed } from "../../../src/webhooks/dispatch/settle-and-claim.ts";
import type { Outcome } from "../../../src/webhooks/outcome.ts";
import { checkPost, type Post } from "./invariants.ts";
import type { Store } from "./store.ts";
import type { Isolate, World } from "./world.ts";

/** How a subscriber's server behaves; this changes over time. */
export const BEHAVIOURS = [
  ...(["fine", "slow", "flaky", "poisoned", "error", "hang"] as const),
  ...(["unreachable", "stall", "overloaded"] as const),
];
export type Behaviour = (typeof BEHAVIOURS)[number];

/** The subscribers' servers, each with a host of its own, and what was posted to them. */
export class Subscribers {
  readonly posts: Post[] = [];
  /** When subscriptions were withdrawn and the call that did it had returned. */
  readonly withdrawnAt = new Map<string, number>();
  readonly #behaviours = new Map<string, Behaviour>();

  readonly world: World;
  readonly store: Store;

  constructor(world: World, store: Store) {
    this.world = world;
    this.store = store;
  }

  get count(): number {
    return this.#behaviours.size;
  }

  /** Opens a server. @returns its host. */
  open(behaviour: Behaviour): string {
    const host = `subscriber-${this.count}.example`;
    this.#behaviours.set(host, behaviour);
    return host;
  }

  isFine(url: string): boolean {
    return this.#behaviours.get(new URL(url).host) === "fine";
  }

  changeWeather(): void {
    for (const host of this.#behaviours.keys())
      if (this.world.chance.happens(0.5))
        this.#behaviours.set(host, this.world.chance.pick(BEHAVIOURS));
    this.world.note(`subscribers are now ${[...this.#behaviours.values()]}`);
  }

  /** Most of them recover. Slow ones stay slow: the others must not wait for them. */
  recover(): void {
    for (const [host, behaviour] of this.#behaviours)
      if (behaviour === "stall" || (behaviour !== "slow" && this.world.chance.happens(0.7)))
        this.#behaviours.set(host, "fine");
  }

  /** The network and the subscriber's server, for one attempt. */
  attempt(delivery: Claimed, target: Target, isolate: Isolate): Promise<Outcome> {
    return isolate.request(() => this.#post(delivery, target, isolate));
  }

  async #post(delivery: Claimed, target: Target, isolate: Isolate): Promise<Outcome> {
    const { world } = this;
    await isolate.step();
    const { eventId, subscriptionId } = delivery;
    const { host } = new URL(target.url);
    const [stored] = this.store.rows<EventWithBody>(
      `${EVENTS_WITH_BODIES} WHERE "events"."id" = ?`,
      eventId,
    );
    const body =
      (await makeBody(ENCRYPTION_KEYS, target, delivery.event)) ??
      (stored && (await bodyOf(ENCRYPTION_KEYS, stored))) ??
      "";
    const post: Post = {
      eventId,
      subscriptionId,
      body,
      isolate,
      startedAt: world.now,
      endedAt: null,
      acknowledged: false,
    };
    world.guard(() => checkPost(this.store, post, this.posts, this.withdrawnAt));
    this.posts.push(post);
    const behaviour = this.#behaviours.get(host) ?? "fine";
    const outcome = await this.#answer(behaviour, eventId);
    post.endedAt = world.now;
    post.acknowledged = outcome.kind === "answered" && outcome.status < 300;
    world.note(`post ${eventId} to ${subscriptionId} (${behaviour}): ${JSON.stringify(outcome)}`);
    await isolate.step();
    return outcome;
  }

  async #answer(behaviour: Behaviour, eventId: string): Promise<Outcome> {
    const { world } = this;
    const answered = (status: number, retryAfterSeconds: number | null = null): Outcome => ({
      kind: "answered",
      status,
      retryAfterSeconds,
    });
    // A machine that stalls gets its answer long after its lease has ended.
    await world.sleep(
      behaviour === "stall" ? world.chance.between(1, 600_000) : world.chance.between(5, 500),
    );
    switch (behaviour) {
      case "slow":
        await world.sleep(world.chance.between(1_000, 9_400));
        return answered(200);
      case "poisoned":
        // One event in five is always rejected.
        return answered(eventId.charCodeAt(eventId.length - 1) % 5 === 0 ? 500 : 200);
      case "flaky":
        return answered(world.chance.happens(0.5) ? 200 : 500);
      case "error":
        return answered(world.chance.pick([301, 400, 404, 410, 500, 503]));
      case "overloaded":
        return answered(world.chance.pick([429, 503]), world.chance.between(0, 100_000));
      case "unreachable":
        return { kind: "unreachable" };
      case "hang":
        await world.sleep(10_000);
        return { kind: "timed_out" };
      case "stall":
        return world.chance.happens(0.5) ? answered(200) : { kind: "timed_out" };
      default:
        return answered(world.chance.pick([200, 201, 204, 299]));
    }
  }
}

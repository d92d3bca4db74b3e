import { timeBudget } from "../primitives/timing.ts";

/**
 * Maximum requests of one invocation that wait for their response headers: a limit of the runtime. Whether calls to D1
 * count is not documented. If they do, a round waits until a request gets its response, or times out.
 */
export const CONNECTIONS_MAX = 6;
/** Maximum connections of one workspace while the dispatch also serves others. */
const CONNECTIONS_PER_WORKSPACE = 3;
/**
 * After this long without a connection queued for, taken or given back, waiting sessions leave the rest to another
 * dispatch.
 */
export const STUCK_MS = 500;

/** A place in the queue for a connection; once its turn has come, the connection itself. */
export interface Place {
  readonly workspaceId: string;
  isConnected: boolean;
  /** Called when its turn has come. */
  readonly onConnected: () => void;
}

/**
 * The connections of a dispatch. The workspace with the fewest of them gets the next one and, in it, the session that has
 * queued longest. So a workspace with many subscriptions, whose endpoints take their time, delays another one by a
 * single request. Each session queues for one request at a time, and lets the others queue before it queues again, so
 * the sessions of a workspace take turns. A workspace uses at most its share while the dispatch also serves others.
 */
export class Connections {
  #free: number;
  /** The workspace of each subscription that the dispatch serves. */
  readonly #served = new Map<string, string>();
  readonly #queue: Place[] = [];
  readonly #used = new Map<string, number>();
  /** Whether a connection was queued for, taken or given back less than `STUCK_MS` ago. */
  #hasJustChanged = timeBudget(STUCK_MS);

  /** @param max the number of connections. */
  constructor(max: number) {
    this.#free = max;
  }

  /** Notes that the dispatch sends to a subscription, whose workspace shares the connections with the others. */
  serve(subscriptionId: string, workspaceId: string): void {
    this.#served.set(subscriptionId, workspaceId);
  }

  /** Notes that the dispatch sends no more to a subscription. */
  unserve(subscriptionId: string): void {
    this.#served.delete(subscriptionId);
    // The workspace that is left may use more of them.
    this.#connect();
  }

  /** Whether no connection has been queued for, taken or given back for `STUCK_MS`. */
  get areStuck(): boolean {
    return !this.#hasJustChanged();
  }

  queueUp(workspaceId: string, onConnected: () => void): Place {
    const place = { workspaceId, isConnected: false, onConnected };
    this.#queue.push(place);
    // Without this, a session that queues after a slow round would leave before it gets a connection that is free.
    this.#hasJustChanged = timeBudget(STUCK_MS);
    // Connections are given a moment later, once all sessions that the same round has served have queued up.
    queueMicrotask(() => this.#connect());
    return place;
  }

  /** Leaves the queue, or gives the connection back. */
  leave(place: Place): void {
    if (place.isConnected) this.#use(place.workspaceId, -1);
    else this.#queue.splice(this.#queue.indexOf(place), 1);
    this.#connect();
  }

  #connect(): void {
    const share =
      new Set(this.#served.values()).size > 1
        ? CONNECTIONS_PER_WORKSPACE
        : Number.POSITIVE_INFINITY;
    const usedBy = ({ workspaceId }: Place) => this.#used.get(workspaceId) ?? 0;
    while (this.#free > 0) {
      const [place] = this.#queue
        .filter((each) => usedBy(each) < share)
        .toSorted((a, b) => usedBy(a) - usedBy(b));
      if (!place) return;
      this.#queue.splice(this.#queue.indexOf(place), 1);
      this.#use(place.workspaceId, 1);
      place.isConnected = true;
      place.onConnected();
    }
  }

  #use(workspaceId: string, change: 1 | -1): void {
    this.#free -= change;
    this.#used.set(workspaceId, (this.#used.get(workspaceId) ?? 0) + change);
    this.#hasJustChanged = timeBudget(STUCK_MS);
  }
}

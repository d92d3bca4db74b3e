import { z } from "@hono/zod-openapi";
import { InputError } from "../contract/input-error.ts";
import { DRAINED_MS, LEFT_BEHIND_MS } from "../contract/limits.ts";
import { commit, type Database, inOrder, readAs, type Statements } from "../db/client.ts";
import { DIRECTORY, openDirectory, openNamed } from "../db/databases.ts";
import { findHome, inTime } from "../db/homes.ts";
import type { MovePosition, MoveState } from "../db/schema.ts";
import { wake } from "../delivery/wake.ts";
import { callObject } from "../gate/call.ts";
import { log, logError } from "../log.ts";
import { listLiveKeys } from "../model/api-keys.ts";
import {
  applyChanges,
  findChanges,
  findPiece,
  KINDS_COPIED,
  upsertRows,
} from "../model/copying.ts";
import { listDue } from "../model/due.ts";
import {
  arrive,
  beginMove,
  cancelArrival,
  cancelMove,
  deleteChanges,
  deleteMove,
  expectArrival,
  expectMover,
  findLiving,
  findMove,
  isHeld,
  isOvertaken,
  type Move,
  openArrived,
  pointTo,
  releaseMove,
  renewMove,
  takeArrival,
  takeDirectoryEntry,
  takeMove,
  updatePosition,
  updateState,
  type Workspace,
} from "../model/moves.ts";
import { eraseLeftBehind } from "../model/workspace-erasure.ts";

/** The progress of a move. */
export const MoveProgress = z.object({
  done: z.boolean().describe("the workspace lives in the requested database"),
  state: z
    .string()
    .nullable()
    .describe("of the move: copying, draining, closed or cancelled; null if there is none"),
});
export type MoveProgress = z.infer<typeof MoveProgress>;

/**
 * Moves a workspace to another database, or continues a move. Moving it to the database that it lives
 * in cancels a move that has not reached its switch. If another mover owns the move, it may have died;
 * this one waits until it can take over.
 *
 * @param mayGoOn whether there is time for more.
 * @throws InputError if the workspace is being moved elsewhere, or erased.
 */
export async function moveWorkspace(
  env: Env,
  workspaceId: string,
  to: string,
  mayGoOn: () => boolean,
): Promise<MoveProgress> {
  for (let hasBegun = false; ; ) {
    const { database: from, db: source } = await findHome(env, workspaceId);
    const move = await commit(source, findMove(workspaceId));
    const state = move?.state ?? null;
    if (state === null || state === "left") {
      if (from === to) return { done: true, state: null };
      // Another call has cancelled it.
      if (hasBegun) return { done: false, state: null };
      await begin(env, workspaceId, from, to);
      hasBegun = true;
    } else if (move && (state === "copying" || state === "draining")) {
      if (from === to) await new Mover(env, from, move).work(mayGoOn, "cancelled");
      else if (move.other !== to)
        throw new InputError("database", `this workspace is being moved to ${move.other}`);
      hasBegun ||= from !== to;
    } else if (state === "erasing")
      throw new InputError("workspaceId", "this workspace is being erased");
    // It has arrived, but its mover died before it opened the workspace.
    const leaving = move?.state === "arrived" ? move.other : from;
    await continueMove(env, leaving, workspaceId, mayGoOn);
    if (!mayGoOn()) return progressOf(env, workspaceId, to);
    await sleep(RETRY_MS);
  }
}

async function progressOf(env: Env, workspaceId: string, to: string): Promise<MoveProgress> {
  const { database, db } = await findHome(env, workspaceId);
  const move = await commit(db, findMove(workspaceId));
  const state = move && move.state !== "left" ? move.state : null;
  return { done: database === to && state === null, state };
}

async function begin(env: Env, workspaceId: string, from: string, to: string): Promise<void> {
  const [source, target] = [openNamed(env, from), openNamed(env, to)];
  const workspace = await commit(source, findLiving(workspaceId));
  if (!workspace) return;
  const now = Date.now();
  const arrival = await inTime(to, commit(target, expectArrival(workspace, from, now)));
  // It already lives there: another mover was faster.
  if (!arrival) return;
  if (arrival.state !== "arriving" || arrival.other !== from)
    throw new InputError("database", `what this workspace left in ${to} is still being deleted`);
  await commit(source, beginMove(workspaceId, to, now));
}

/** Continues the move of a workspace that is leaving a database, while there is time. */
export async function continueMove(
  env: Env,
  from: string,
  workspaceId: string,
  mayGoOn: () => boolean,
): Promise<void> {
  const move = await commit(openNamed(env, from), findMove(workspaceId));
  if (move) await new Mover(env, from, move).work(mayGoOn);
}

const RETRY_MS = 250;

/** Another mover has taken over. */
class Overtaken extends Error {}

/** The states before a workspace lives in the other database. */
const BEFORE_ARRIVAL: MoveState[] = ["copying", "draining", "closed", "cancelled"];

class Mover {
  readonly #mover = crypto.randomUUID();
  readonly #env: Env;
  readonly #from: string;
  readonly #source: Database;
  readonly #target: Database;
  #move: Move;

  constructor(env: Env, from: string, move: Move) {
    this.#env = env;
    this.#from = from;
    this.#move = move;
    this.#source = openNamed(env, from);
    this.#target = openNamed(env, move.other);
  }

  get #id(): string {
    return this.#move.workspaceId;
  }

  /**
   * Works on the move while there is time. A closed workspace is switched in any case, because its
   * writes are waiting.
   *
   * @param end `cancelled` cancels a move that has not reached its switch.
   */
  async work(mayGoOn: () => boolean, end?: "cancelled"): Promise<void> {
    try {
      if (end) await this.#cancel();
      await this.#take();
      while ((this.#move.state === "closed" || mayGoOn()) && (await this.#stepOrRetry(mayGoOn)));
    } catch (error) {
      if (!(error instanceof Overtaken)) throw error;
    } finally {
      await commit(this.#source, releaseMove(this.#id, this.#mover));
      if (this.#move.state === "draining") await this.#wakeHere();
    }
  }

  /**
   * Takes over the move, and stops its earlier movers from writing to the target. The source is taken
   * twice: if this mover hung in between, another one may have taken over.
   *
   * @throws Overtaken if another mover owns the move.
   */
  async #take(): Promise<void> {
    await this.#takeHere();
    if (!BEFORE_ARRIVAL.includes(this.#move.state)) return;
    await commit(this.#target, takeArrival(this.#id, this.#mover));
    await this.#takeHere();
  }

  async #takeHere(): Promise<void> {
    const move = await commit(this.#source, takeMove(this.#id, this.#mover, Date.now()));
    if (!move) throw new Overtaken();
    this.#move = move;
  }

  /** Commits statements. @throws Overtaken if another mover has taken over; nothing is written then. */
  async #commit<R>(db: Database, states: MoveState[], statements: Statements<R>): Promise<R> {
    const expected = expectMover(this.#id, this.#mover, states);
    try {
      return await commit(
        db,
        readAs(inOrder([expected, statements]), ([, result]) => result),
      );
    } catch (error) {
      throw isOvertaken(error) ? new Overtaken() : error;
    }
  }

  /** Commits statements at the source, and renews the ownership of the move. */
  #atSource<R>(statements: Statements<R>): Promise<R> {
    const kept = inOrder([renewMove(this.#id, Date.now()), statements]);
    return this.#commit(
      this.#source,
      [this.#move.state],
      readAs(kept, ([, result]) => result),
    );
  }

  /** Takes one step. While writes are waiting, a failed step is retried as long as there is time. */
  async #stepOrRetry(mayGoOn: () => boolean): Promise<boolean> {
    try {
      return await this.#step(mayGoOn);
    } catch (error) {
      if (error instanceof Overtaken || this.#move.state !== "closed" || !mayGoOn()) throw error;
      logError("move_failed", error, { workspace: this.#id });
      await sleep(RETRY_MS);
      return true;
    }
  }

  /** Takes one step. @returns whether there may be another one. */
  async #step(mayGoOn: () => boolean): Promise<boolean> {
    switch (this.#move.state) {
      case "copying":
        if (this.#move.position) await this.#copyPiece(this.#move.position);
        // A busy workspace always has some: the last ones are copied while it drains.
        else if (!(await this.#copyChanges())) await this.#enter("draining");
        return true;
      case "draining":
        if (await this.#copyChanges()) return true;
        return this.#drain();
      case "closed":
        await this.#switch();
        return true;
      case "cancelled":
        await commit(this.#target, cancelArrival(this.#id, this.#mover, Date.now()));
        await this.#commit(this.#source, ["cancelled"], deleteMove(this.#id));
        return false;
      case "gone":
        return this.#cleanUp(mayGoOn);
      default:
        return false;
    }
  }

  async #enter(state: MoveState): Promise<void> {
    const now = Date.now();
    await this.#atSource(updateState(this.#id, state, now));
    this.#entered(state, now);
  }

  #entered(state: MoveState, now: number): void {
    this.#move = { ...this.#move, state, since: now };
    log("move", { workspace: this.#id, from: this.#from, to: this.#move.other, state });
  }

  /** Cancels a move that has not reached its switch, even if the other database does not answer. */
  async #cancel(): Promise<void> {
    await this.#takeHere();
    if (this.#move.state !== "copying" && this.#move.state !== "draining") return;
    const now = Date.now();
    await this.#atSource(cancelMove(this.#id, now));
    this.#entered("cancelled", now);
    await this.#wakeHere();
  }

  /** Wakes subscriptions that had to wait while the workspace drained. */
  async #wakeHere(): Promise<void> {
    await wake(this.#env, this.#from, await commit(this.#source, listDue(this.#id, Date.now())));
  }

  async #copyPiece({ kind, after }: MovePosition): Promise<void> {
    const piece = await commit(this.#source, findPiece(this.#id, kind, after));
    if (piece.rows.length > 0)
      await this.#commit(this.#target, ["arriving"], upsertRows(kind, piece.rows));
    const next = piece.next ? { kind, after: piece.next } : { kind: kind + 1, after: null };
    const position = next.kind < KINDS_COPIED ? next : null;
    await this.#atSource(updatePosition(this.#id, position));
    this.#move = { ...this.#move, position };
  }

  /** Copies the oldest of the rows written since copying began. @returns whether there are more. */
  async #copyChanges(): Promise<boolean> {
    const changed = await commit(this.#source, findChanges(this.#id));
    if (changed.through === null) return false;
    await this.#commit(this.#target, ["arriving"], applyChanges(this.#id, changed));
    await this.#atSource(deleteChanges(this.#id, changed.through));
    return !changed.isAll;
  }

  /** Closes the workspace once none of its subscriptions is held; no new holds begin meanwhile. */
  async #drain(): Promise<boolean> {
    const now = Date.now();
    if (await commit(this.#source, isHeld(this.#id, now))) {
      await sleep(DRAINED_MS);
      await this.#atSource(inOrder([]));
    } else if (now - this.#move.since < DRAINED_MS) await sleep(DRAINED_MS);
    else await this.#enter("closed");
    return true;
  }

  /** Switches the workspace to the target, while writes wait. The last changes are copied first. */
  async #switch(): Promise<void> {
    while (await this.#copyChanges());
    const [id, mover, to] = [this.#id, this.#mover, this.#move.other];
    const workspace = await commit(this.#source, findLiving(id));
    if (workspace) await this.#point(workspace);
    // From now on, every read goes to the target.
    const keys = await listLiveKeys(openDirectory(this.#env), id, Date.now());
    await Promise.all(
      keys
        .filter(({ lastUsedAt }) => lastUsedAt !== null)
        .map(({ keyHash }) => callObject(this.#env.KEY_GATE, keyHash, (gate) => gate.forget())),
    );
    const [, wakes] = await commit(
      this.#target,
      inOrder([openArrived(id, mover), listDue(id, Date.now())]),
    );
    await this.#enter("gone");
    await wake(this.#env, to, wakes);
  }

  /** Makes the workspace live in the target, for everyone who looks it up; the source comes last. */
  async #point(workspace: Workspace): Promise<void> {
    const [id, from, to] = [this.#id, this.#from, this.#move.other];
    const directory = openDirectory(this.#env);
    const isBetweenOthers = from !== DIRECTORY && to !== DIRECTORY;
    // Before `arrive`, which fails if the workspace has since been moved on.
    if (isBetweenOthers)
      await commit(directory, takeDirectoryEntry(id, to, this.#mover, Date.now()));
    await this.#commit(this.#target, ["arriving", "arrived"], arrive(workspace, Date.now()));
    if (isBetweenOthers) await this.#commit(directory, ["left", "gone"], pointTo(id, from, to));
    await this.#atSource(pointTo(id, null, to));
  }

  /** Deletes what the workspace left behind, once reads in progress have ended. */
  async #cleanUp(mayGoOn: () => boolean): Promise<boolean> {
    if (Date.now() - this.#move.since < LEFT_BEHIND_MS) return false;
    while (!(await this.#atSource(eraseLeftBehind(this.#id)))) if (!mayGoOn()) return false;
    await this.#enter("left");
    return false;
  }
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

import { InputError } from "../contract/input-error.ts";
import { DRAINED_MS, LEFT_BEHIND_MS } from "../contract/limits.ts";
import { commit, type Database, inOrder } from "../db/client.ts";
import { DIRECTORY, openDirectory, openNamed } from "../db/databases.ts";
import { findHome } from "../db/homes.ts";
import type { MovePosition, MoveState } from "../db/schema.ts";
import { wake } from "../delivery/wake.ts";
import { callObject } from "../gate/call.ts";
import { log, logError } from "../log.ts";
import { liveKeys } from "../model/api-keys.ts";
import {
  KINDS_COPIED,
  readChanges,
  readPiece,
  writeChanges,
  writePiece,
} from "../model/copying.ts";
import { listDue } from "../model/due.ts";
import { eraseLeftBehind } from "../model/erasure.ts";
import {
  beginMove,
  cancelMove,
  changeState,
  deleteChanges,
  expectArrival,
  findLiving,
  findMove,
  giveBackMove,
  isHeld,
  liveHere,
  type Move,
  mayArrive,
  openHere,
  pointTo,
  takeArrival,
  takeMove,
  updatePosition,
} from "../model/moves.ts";

/** How far a move has come. */
export interface MoveProgress {
  /** Whether the workspace lives in the database that it was to be moved to. */
  done: boolean;
  /** What is being done: `copying`, `draining`, `closed`; null when the workspace has moved. */
  state: MoveState | null;
}

/**
 * Moves a workspace to another database, or goes on with it; back to the one that it lives in, it ends
 * a move that has not come to its switch.
 *
 * @param mayGoOn whether there is time for more.
 * @throws InputError for a workspace that is being moved elsewhere.
 */
export async function moveWorkspace(
  env: Env,
  workspaceId: string,
  to: string,
  mayGoOn: () => boolean,
): Promise<MoveProgress> {
  const { database: from, db: source } = await findHome(env, workspaceId);
  const move = await commit(source, findMove(workspaceId));
  // It lives there, and whoever died before it was open left that to be done.
  if (move?.state === "arrived") return finish(env, move.other, workspaceId, mayGoOn);
  if (from === to && (!move || move.state === "left")) return { done: true, state: null };
  if (from === to && (move?.state === "copying" || move?.state === "draining")) {
    await new Mover(env, from, move).cancel();
    return { done: true, state: null };
  }
  if (move && move.other !== to && move.state !== "left")
    throw new InputError(`database: this workspace is being moved to ${move.other}`);
  if (!move || move.state === "left") await begin(env, workspaceId, from, to);
  return finish(env, from, workspaceId, mayGoOn);
}

/** Goes on while there is time, and waits for somebody else who has the move, and may have died. */
async function finish(
  env: Env,
  from: string,
  workspaceId: string,
  mayGoOn: () => boolean,
): Promise<MoveProgress> {
  for (;;) {
    const progress = await goOn(env, from, workspaceId, mayGoOn);
    if (progress.done || !mayGoOn()) return progress;
    await sleep(RETRY_MS);
  }
}

async function begin(env: Env, workspaceId: string, from: string, to: string): Promise<void> {
  const [source, target] = [openNamed(env, from), openNamed(env, to)];
  const workspace = await commit(source, findLiving(workspaceId));
  if (!workspace) throw new InputError("workspaceId: no such workspace");
  const now = Date.now();
  await commit(target, expectArrival(workspace, from, now));
  const arrival = await commit(target, findMove(workspaceId));
  if (arrival?.state !== "arriving" || arrival.other !== from)
    throw new InputError(`database: what this workspace left in ${to} is still being deleted`);
  await commit(source, beginMove(workspaceId, to, now));
}

/** Goes on with the move of a workspace that is leaving a database, while there is time. */
export async function goOn(
  env: Env,
  from: string,
  workspaceId: string,
  mayGoOn: () => boolean,
): Promise<MoveProgress> {
  const move = await commit(openNamed(env, from), findMove(workspaceId));
  return move ? new Mover(env, from, move).work(mayGoOn) : { done: true, state: null };
}

const RETRY_MS = 250;

/** The mover has lost its move to another one, which goes on with it. */
class Overtaken extends Error {}

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

  async work(mayGoOn: () => boolean): Promise<MoveProgress> {
    try {
      await this.#take();
      while (mayGoOn() && (await this.#stepOrRetry(mayGoOn)));
    } catch (error) {
      if (!(error instanceof Overtaken)) throw error;
    } finally {
      await commit(this.#source, giveBackMove(this.#id, this.#mover));
    }
    const { state } = (await commit(this.#source, findMove(this.#id))) ?? { state: null };
    const done = state === null || state === "gone" || state === "left";
    return { done, state: done ? null : state };
  }

  async cancel(): Promise<void> {
    await this.#take();
    if (!(await commit(this.#source, cancelMove(this.#id, this.#mover)))) return;
    // As if it had been there, and had gone: its line stays, and the sweep deletes the rest.
    const [id, mover] = [this.#id, this.#mover];
    const gone = changeState(id, mover, ["arriving", "gone"], Date.now());
    await commit(this.#target, inOrder([gone, giveBackMove(id, mover)]));
  }

  /** @throws Overtaken when somebody else has the move. */
  async #take(): Promise<void> {
    const move = await commit(this.#source, takeMove(this.#id, this.#mover, Date.now()));
    if (!move) throw new Overtaken();
    this.#move = move;
    await commit(this.#target, takeArrival(this.#id, this.#mover));
  }

  /** One step. While writes wait for it, it is tried again as long as there is time. */
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

  /** One step; gives whether there may be another one. */
  async #step(mayGoOn: () => boolean): Promise<boolean> {
    switch (this.#move.state) {
      case "copying":
        if (this.#move.position) await this.#copyPiece(this.#move.position);
        else if (!(await this.#copyChanges())) await this.#enter("draining");
        return true;
      case "draining":
        if (await this.#copyChanges()) return true;
        return this.#drain();
      case "closed":
        await this.#switch();
        return true;
      case "gone":
        return this.#cleanUp(mayGoOn);
      default:
        return false;
    }
  }

  async #enter(state: MoveState): Promise<void> {
    const now = Date.now();
    const change = changeState(this.#id, this.#mover, [this.#move.state, state], now);
    this.#expect(await commit(this.#source, change));
    this.#move = { ...this.#move, state, since: now };
    log("move", { workspace: this.#id, from: this.#from, to: this.#move.other, state });
  }

  /** @throws Overtaken when a write of the mover found that it has the move no more. */
  #expect(changed: number): void {
    if (changed === 0) throw new Overtaken();
  }

  async #copyPiece({ kind, after }: MovePosition): Promise<void> {
    const piece = await commit(this.#source, readPiece(this.#id, kind, after));
    if (piece.rows.length > 0)
      await commit(this.#target, writePiece(piece, mayArrive(this.#id, this.#mover)));
    const next = piece.last ? { kind, after: piece.last } : { kind: kind + 1, after: null };
    const position = next.kind < KINDS_COPIED ? next : null;
    const noted = updatePosition(this.#id, this.#mover, position, Date.now());
    this.#expect(await commit(this.#source, noted));
    this.#move = { ...this.#move, position };
  }

  /** Copies what has been written meanwhile; gives whether there was any. */
  async #copyChanges(): Promise<boolean> {
    const changed = await commit(this.#source, readChanges(this.#id));
    if (changed.through === null) return false;
    const guard = mayArrive(this.#id, this.#mover);
    await commit(this.#target, writeChanges(this.#id, changed, guard));
    const copied = deleteChanges(this.#id, this.#mover, changed.through, Date.now());
    this.#expect(await commit(this.#source, copied));
    return true;
  }

  /** Closes the workspace once nobody holds its subscriptions; nothing new is posted meanwhile. */
  async #drain(): Promise<boolean> {
    const now = Date.now();
    if (await commit(this.#source, isHeld(this.#id, now))) {
      await sleep(DRAINED_MS);
      this.#expect(
        await commit(this.#source, updatePosition(this.#id, this.#mover, null, Date.now())),
      );
    } else if (now - this.#move.since < DRAINED_MS) await sleep(DRAINED_MS);
    else await this.#enter("closed");
    return true;
  }

  /** From here on whoever writes waits: what is left is copied, and the workspace lives there. */
  async #switch(): Promise<void> {
    while (await this.#copyChanges());
    const [id, mover, from, to] = [this.#id, this.#mover, this.#from, this.#move.other];
    const workspace = await commit(this.#source, findLiving(id));
    if (workspace) await commit(this.#target, liveHere(workspace, mover, Date.now()));
    if (from !== DIRECTORY && to !== DIRECTORY)
      await commit(openDirectory(this.#env), pointTo(id, from, to));
    await commit(this.#source, pointTo(id, null, to));
    // What is written there is found by everybody who reads afterwards.
    const keys = await liveKeys(openDirectory(this.#env), id, Date.now());
    await Promise.all(
      keys
        .filter(({ lastUsedAt }) => lastUsedAt !== null)
        .map(({ keyHash }) => callObject(this.#env.KEY_GATE, keyHash, (gate) => gate.forget())),
    );
    const [, wakes] = await commit(
      this.#target,
      inOrder([openHere(id, mover), listDue(id, Date.now())]),
    );
    await this.#enter("gone");
    await wake(this.#env, to, wakes);
  }

  /** Deletes what the workspace has left behind, once reads that began before are over. */
  async #cleanUp(mayGoOn: () => boolean): Promise<boolean> {
    if (Date.now() - this.#move.since < LEFT_BEHIND_MS) return false;
    if (await eraseLeftBehind(this.#source, this.#id, mayGoOn)) await this.#enter("left");
    return false;
  }
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

import { and, eq, isNull, lte, or, sql } from "drizzle-orm";
import { qb } from "../../db/builder.ts";
import { commit, type Executable, inOrder, type ResultOf } from "../../db/client.ts";
import { openNamed } from "../../db/databases.ts";
import { type MoveState, moves } from "../../db/schema.ts";
import { log, logError } from "../../log.ts";
import { sleep } from "../../timing.ts";
import { findMove, isMoveOf, type Move } from "../moves.ts";
import { DatabaseUnreachable, inTime } from "../placement.ts";
import { isMoveIn, updateMove } from "./steps.ts";

/** How long a mover owns a move, unless it renews the lease. */
const MOVER_MS = 15_000;
/** How long a database may take to answer a mover; less than `MOVER_MS`. */
const MOVER_PATIENCE_MS = 10_000;

/** Another mover has taken over, or the move is over. */
export class LeaseLost extends Error {}

const NOT_OWNED = "NOT NULL constraint failed: moves.workspace_id";

/** How long to wait before another try, while writes wait for it. */
const RETRY_MS = 100;

/**
 * A move owned by one mover. Each mover has its own identity. Only the owner changes the state of a move;
 * each of its writes checks, in the same transaction, that it still owns it: it may have hung, and another
 * mover may have taken over.
 */
export class OwnedMove {
  readonly mover = crypto.randomUUID();
  /** The names of the source and of the target. */
  readonly from: string;
  readonly to: string;
  /** When all must be done, by `performance.now()`. */
  deadline = Number.POSITIVE_INFINITY;
  move: Move;
  protected readonly env: Env;

  constructor(env: Env, from: string, move: Move) {
    this.env = env;
    this.from = from;
    this.to = move.other;
    this.move = move;
  }

  get workspaceId(): string {
    return this.move.workspaceId;
  }

  /**
   * Takes over the move at the source, or makes sure that this mover still owns it.
   *
   * @param isUrgent whether to take it over even if it is waiting after a failed switch.
   * @throws LeaseLost if another mover owns it, or it is over.
   */
  async take(isUrgent = false): Promise<void> {
    const now = Date.now();
    const isFree = or(
      eq(moves.movedBy, this.mover),
      lte(moves.movedUntil, now),
      isUrgent ? isNull(moves.movedBy) : undefined,
    );
    const taken = qb
      .update(moves)
      .set({ movedBy: this.mover, movedUntil: now + MOVER_MS })
      .where(and(isMoveIn(this.move, ["copying", "draining", "closed", "gone"]), isFree));
    const [, move] = await this.ask(this.from, inOrder([taken, findMove(this.workspaceId)]));
    if (move?.movedBy !== this.mover) throw new LeaseLost();
    this.move = move;
  }

  /**
   * Releases the move for the next mover; until then, deliveries need not wait.
   *
   * @param until when the sweep may continue it, in Unix milliseconds.
   */
  async releaseUntil(until: number): Promise<void> {
    this.deadline = Number.POSITIVE_INFINITY;
    const state = sql`CASE ${moves.state} WHEN 'draining' THEN 'copying' ELSE ${moves.state} END`;
    const released = qb
      .update(moves)
      .set({ movedBy: null, movedUntil: until, state })
      .where(and(isMoveOf(this.workspaceId), eq(moves.movedBy, this.mover)));
    await this.ask(this.from, released);
  }

  /** Commits statements in a database. @throws DatabaseUnreachable if there is no answer in time. */
  async ask<P extends Executable>(database: string, part: P): Promise<ResultOf<P>> {
    const leftMs = this.deadline - performance.now();
    if (leftMs <= 0) throw new DatabaseUnreachable(`out of time before ${database} was asked`);
    const answer = commit(openNamed(this.env, database), part);
    return inTime(database, answer, Math.min(leftMs, MOVER_PATIENCE_MS));
  }

  /**
   * Commits statements in a database where the move is in one of these states.
   *
   * @throws LeaseLost if another mover has taken over; nothing is written then.
   */
  async commit<P extends Executable>(
    database: string,
    states: MoveState[],
    part: P,
  ): Promise<ResultOf<P>> {
    const isOwner = and(isMoveIn(this.move, states), eq(moves.movedBy, this.mover));
    // Fails the transaction by violating the constraint below.
    const expectOwner = sql`INSERT INTO ${moves} (workspace_id, move_id, state, other, since)
      SELECT NULL, '', '', '', 0 WHERE NOT EXISTS (SELECT 1 FROM ${moves} WHERE ${isOwner})`;
    try {
      const [, result] = await this.ask(database, inOrder([expectOwner, part]));
      return result as ResultOf<P>;
    } catch (error) {
      throw String(error).includes(NOT_OWNED) ? new LeaseLost() : error;
    }
  }

  /** Commits statements at the source, and renews the lease. */
  async commitAtSource<P extends Executable>(
    part: P,
    states = [this.move.state],
  ): Promise<ResultOf<P>> {
    const renewed = updateMove(this.workspaceId, { movedUntil: Date.now() + MOVER_MS });
    const kept = inOrder([renewed, part]);
    const [, result] = await this.commit(this.from, states, kept);
    return result as ResultOf<P>;
  }

  /** Changes the row of the move at the source. */
  async update(fields: Partial<Pick<Move, "position" | "gatesTold">>): Promise<void> {
    await this.commitAtSource(updateMove(this.workspaceId, fields));
    this.move = { ...this.move, ...fields };
  }

  /** Enters a state. If the reply was lost, a second try finds itself in that state. */
  async enter(state: MoveState, failures = this.move.failures): Promise<void> {
    const entered = { state, failures, since: Date.now() };
    const states = [this.move.state, state];
    await this.commitAtSource(updateMove(this.workspaceId, entered), states);
    this.move = { ...this.move, ...entered };
    this.logState(state);
  }

  logState(state: MoveState | "cancelled" | "done"): void {
    log("move", { workspaceId: this.workspaceId, from: this.from, to: this.to, state });
  }

  /** Repeats an act until it succeeds, or the deadline. @throws its first error. */
  async retryUntilDeadline<R>(act: () => Promise<R>): Promise<R> {
    const { deadline } = this;
    for (let first: unknown; ; ) {
      try {
        return await act();
      } catch (error) {
        if (error instanceof LeaseLost) throw error;
        first ??= error;
        logError("move_failed", error, { workspaceId: this.workspaceId });
        if (performance.now() + RETRY_MS > deadline) throw first;
        await sleep(RETRY_MS);
      }
    }
  }
}

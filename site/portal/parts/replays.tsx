import { useState } from "preact/hooks";
import type { WebhookView } from "../../../src/history/views.ts";
import type { ReplayView } from "../../../src/workspaces/views.ts";
import { describeRange } from "../actions/redeliver.tsx";
import { listReplays, stopReplay } from "../api.ts";
import { formatNumber, formatTime } from "../format.ts";
import { type Loaded, reloadAll, useAction, useLoad } from "../load.ts";
import { isReadOnly } from "../session.ts";
import { t } from "../text.ts";
import { Facts } from "./basics.tsx";
import { ActionFault } from "./faults.tsx";
import { Progress, shareOf } from "./progress.tsx";

/** How often the page looks, while a replay runs and otherwise. */
const RUNNING_REFRESH_MS = 2_000;
const REFRESH_MS = 15_000;
/** How long the end of a replay stays on the page. */
const ENDED_SHOWN_MS = 120_000;

/** Keeps the replays of a webhook up to date. */
function useReplays(webhookId: string): Loaded<ReplayView[]> {
  const [isRunning, setRunning] = useState(false);
  const load = async () => {
    const found = await listReplays(webhookId);
    setRunning(found.some(({ result }) => result === null));
    return found;
  };
  return useLoad(load, `replays ${webhookId}`, isRunning ? RUNNING_REFRESH_MS : REFRESH_MS);
}

interface Props {
  webhook: Pick<WebhookView, "webhookId" | "state">;
  /** The name of the webhook, where it is not clear. */
  name?: string | undefined;
}

/** Shows the replays that run, whoever began them, and how the last one has ended. */
export function RunningReplays({ webhook, name }: Props) {
  const { data } = useReplays(webhook.webhookId);
  const isShown = ({ endedAt }: ReplayView) =>
    endedAt === null || Date.parse(endedAt) > Date.now() - ENDED_SHOWN_MS;
  return (
    <div class="replays">
      {(data ?? []).filter(isShown).map((replay) => (
        <Running key={replay.replayId} webhook={webhook} replay={replay} name={name} />
      ))}
    </div>
  );
}

/** The states of a webhook in which a replay may wait for its server. */
const HOLDING: readonly WebhookView["state"][] = ["failing", "rejecting"];

function Running({ webhook, replay, name }: Props & { replay: ReplayView }) {
  const { isBusy, fault, run } = useAction();
  const { scheduled, failed, result, isExamining } = replay;
  const sent = countSent(replay);
  const stop = () =>
    run(async () => {
      await stopReplay(webhook.webhookId, replay.replayId);
      reloadAll();
    });
  const title = [t.replays.title, name].filter(Boolean).join(" – ");
  if (result !== null)
    return (
      <div class={`note ${failed > 0 || result !== "done" ? "warn" : "good"}`} role="status">
        <p class="note-title">{title}</p>
        <p>{describeEnd(replay)}</p>
      </div>
    );
  return (
    <section class="note" aria-label={title}>
      <p class="note-title">{title}</p>
      <Progress label={title} done={shareOf(sent, 0, scheduled)}>
        {isExamining && `${t.replays.examining(formatNumber(scheduled))} `}
        {t.replays.sent(formatNumber(sent), formatNumber(scheduled))}{" "}
        {failed > 0 && `${t.replays.failed(failed)} `}
        {HOLDING.includes(webhook.state) ? t.replays.held : describeLeft(replay)}
      </Progress>
      <Facts of={describeRange(replay)} />
      <ActionFault fault={fault} />
      {!isReadOnly() && (
        <button type="button" aria-disabled={isBusy} onClick={stop}>
          {t.stop}
        </button>
      )}
    </section>
  );
}

/** How many deliveries of a replay had an attempt. */
function countSent({ delivered, failed }: ReplayView): number {
  return delivered + failed;
}

/** The time that an estimate is based on, at least. */
const ESTIMATED_FROM_MS = 4_000;

/** Estimates the time that is left from the pace so far; empty as long as there is none. */
function describeLeft(replay: ReplayView): string {
  const { createdAt, scheduled, isExamining } = replay;
  const [elapsedMs, sent] = [Date.now() - Date.parse(createdAt), countSent(replay)];
  if (isExamining || sent === 0 || elapsedMs < ESTIMATED_FROM_MS) return "";
  return t.replays.left(Math.ceil(((elapsedMs / sent) * (scheduled - sent)) / 60_000));
}

/** Says how a replay ended, with its numbers. */
function describeEnd(replay: ReplayView): string {
  const { result, scheduled, delivered, failed } = replay;
  const numbers = [t.replays.delivered(delivered), failed > 0 && t.replays.failed(failed)];
  const rest = scheduled - countSent(replay);
  if (rest > 0) numbers.push(t.replays.notSent(rest));
  return [t.replays.results[result ?? "done"], ...numbers].filter(Boolean).join(" ");
}

/** Says in a history which events a replay has, how far it is, or how and when it ended. */
export function ReplayFacts({ of: replay }: { of: ReplayView }) {
  const { scheduled, result, endedAt } = replay;
  const facts = describeRange(replay).map(([name, value]) => t.replays.fact(name, String(value)));
  return (
    <>
      <p>
        {result === null
          ? t.replays.running(formatNumber(countSent(replay)), formatNumber(scheduled))
          : describeEnd(replay)}{" "}
        {endedAt && t.replays.endedAt(formatTime(endedAt))}
      </p>
      <p class="small">{facts.join(" · ")}</p>
    </>
  );
}

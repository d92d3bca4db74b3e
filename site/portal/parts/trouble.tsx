import type { ComponentChildren } from "preact";
import { DISABLE_AFTER_MS } from "../../../src/contract/limits.ts";
import type { WebhookDetails } from "../../../src/history/views.ts";
import { EnableDialog } from "../actions/enable.tsx";
import { RedeliverDialog } from "../actions/redeliver.tsx";
import { explain, formatOutcome, formatTime, formatWhen } from "../format.ts";
import { deliveriesHref, webhookHref } from "../route.ts";
import { isReadOnly } from "../session.ts";
import { t } from "../text.ts";
import { wasDisabledByFailures } from "../webhook.ts";
import { DialogButton } from "./dialog.tsx";

/** Explains what is wrong with a webhook and what to do about it, and what is given up or not stored. */
export function Trouble({ webhook }: { webhook: WebhookDetails }) {
  const { pendingExhaustedAt, responseLimitReached } = webhook;
  return (
    <>
      <Problem webhook={webhook} />
      {pendingExhaustedAt && (
        <p class="note warn">{t.webhook.overflow(formatTime(pendingExhaustedAt))}</p>
      )}
      {responseLimitReached && <p class="note">{t.webhook.responseLimit}</p>}
    </>
  );
}

/** Explains the state of a webhook, with the action that recovers it. */
function Problem({ webhook }: { webhook: WebhookDetails }) {
  const { state, failingSince, disabledAt, failures } = webhook;
  if (state === "disabled" && disabledAt !== null) {
    const hasFailed = wasDisabledByFailures(webhook);
    const text = (hasFailed ? t.webhook.disabledFailing : t.webhook.disabled)(
      formatTime(disabledAt),
    );
    return (
      <Notice tone={hasFailed ? "bad" : ""} title={text} webhook={hasFailed ? webhook : null}>
        <p>{t.webhook.undelivered}</p>
        <Recover webhook={webhook} />
      </Notice>
    );
  }
  if (state === "failing" && failingSince !== null)
    return (
      <Notice
        tone="bad"
        title={t.webhook.failing(failures, formatTime(failingSince))}
        webhook={webhook}
      >
        <p>
          {t.webhook.next(nextOf(webhook))} {t.webhook.retried}{" "}
          {t.webhook.outlook(disabledFrom(failingSince))}
        </p>
        <Recover webhook={webhook} />
      </Notice>
    );
  if (state === "rejecting") return <Rejected webhook={webhook} />;
  if (state === "backlog") return <p class="note">{t.webhook.backlog}</p>;
  return state === "slow" ? <p class="note warn">{t.webhook.slow}</p> : null;
}

/** Returns when the next attempt takes place; null if it is now. */
function nextOf({ nextAttemptAt }: WebhookDetails): string | null {
  const now = Date.now();
  const isAhead = nextAttemptAt !== null && Date.parse(nextAttemptAt) > now;
  return isAhead ? formatWhen(nextAttemptAt, now) : null;
}

/** Returns when failures may disable a webhook; null if they may already. */
function disabledFrom(failingSince: string): string | null {
  const at = Date.parse(failingSince) + DISABLE_AFTER_MS;
  return at > Date.now() ? formatTime(at) : null;
}

interface NoticeProps {
  tone: string;
  title: string;
  /** The webhook whose last failure is explained; null for none. */
  webhook: WebhookDetails | null;
  children: ComponentChildren;
}

function Notice({ tone, title, webhook, children }: NoticeProps) {
  const last = webhook?.lastAttempt ?? null;
  const cause = last && explain(last);
  return (
    <div class={`note ${tone}`}>
      <p class="note-title">{title}</p>
      {last && cause && (
        <p>
          <b>{formatOutcome(last)}.</b> {cause.means} {cause.todo}
        </p>
      )}
      {children}
    </div>
  );
}

/** Offers to send the failed events again, once the cause is removed, or leads to who disabled the webhook. */
function Recover({ webhook }: { webhook: WebhookDetails }) {
  const isDisabled = webhook.state === "disabled";
  const wasDisabledByPerson = isDisabled && !wasDisabledByFailures(webhook);
  return (
    <div class="buttons">
      {!isReadOnly() && (
        <DialogButton label={isDisabled ? t.enable.button : t.sendAgain.button} class="primary">
          {(onClose) =>
            isDisabled ? (
              <EnableDialog webhook={webhook} onClose={onClose} />
            ) : (
              <RedeliverDialog webhook={webhook} onClose={onClose} />
            )
          }
        </DialogButton>
      )}
      {wasDisabledByPerson ? (
        <a class="button" href={webhookHref(webhook.webhookId, "history")}>
          {t.webhook.seeChanges}
        </a>
      ) : (
        <a
          class="button"
          href={deliveriesHref(webhook.webhookId, { state: isDisabled ? null : "retrying" })}
        >
          {t.webhook.seeFailed}
        </a>
      )}
    </div>
  );
}

/** Lists the event types that the server rejects, with what to do about each. */
function Rejected({ webhook }: { webhook: WebhookDetails }) {
  return (
    <div class="note warn">
      {webhook.rejected.map(({ type, since, ...last }) => {
        const cause = explain(last);
        return (
          <p key={type}>
            <b>{t.webhook.rejecting(t.types[type], formatTime(since))}</b> {formatOutcome(last)}.{" "}
            {cause?.means} {cause?.todo}
          </p>
        );
      })}
      <p>{t.webhook.rejectingOutlook}</p>
      <Recover webhook={webhook} />
    </div>
  );
}

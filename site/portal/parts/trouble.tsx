import type { ComponentChildren } from "preact";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { DISABLE_AFTER_MS } from "../../../src/contract/limits.ts";
import type { WebhookDetails } from "../../../src/history/views.ts";
import { EditDialog } from "../actions/edit.tsx";
import { EnableDialog } from "../actions/enable.tsx";
import { FollowButton } from "../actions/follow.tsx";
import { Headers } from "../actions/headers.tsx";
import { TestButton } from "../actions/test.tsx";
import {
  explain,
  firstLines,
  formatMoment,
  formatOutcome,
  formatTime,
  formatWhen,
} from "../format.ts";
import { deliveriesHref, deliveryHref, webhookHref } from "../route.ts";
import { isReadOnly } from "../session.ts";
import { t } from "../text.ts";
import { countWaiting, failureOf, formatWaiting, wasDisabledByFailures } from "../webhook.ts";
import { Text } from "./attempts.tsx";
import { Dialog, DialogButton } from "./dialog.tsx";

interface Props {
  webhook: WebhookDetails;
  /** The event types that may be subscribed to. */
  types: readonly WebhookEvent[];
}

/** Explains what is wrong with a webhook and what to do about it, and what is given up or not stored. */
export function Trouble({ webhook, types }: Props) {
  const { pendingExhaustedAt, responseLimitReached } = webhook;
  return (
    <>
      <Problem webhook={webhook} types={types} />
      {pendingExhaustedAt && (
        <p class="note warn">{t.webhook.overflow(formatTime(pendingExhaustedAt))}</p>
      )}
      {responseLimitReached && <p class="note">{t.webhook.responseLimit}</p>}
    </>
  );
}

/** Explains the state of a webhook, with the action that recovers it. */
function Problem({ webhook, types }: Props) {
  const { state, failingSince, disabledAt, failures } = webhook;
  if (state === "disabled" && disabledAt !== null) {
    const hasFailed = wasDisabledByFailures(webhook);
    const text = (hasFailed ? t.webhook.disabledFailing : t.webhook.disabled)(
      formatTime(disabledAt),
    );
    return (
      <div class={hasFailed ? "note bad" : "note"}>
        <p class="note-title">{text}</p>
        {hasFailed && <Cause webhook={webhook} />}
        {hasFailed && <Said webhook={webhook} />}
        <p>{t.webhook.undelivered}</p>
        {hasFailed ? (
          <Fix webhook={webhook} types={types}>
            <Enable webhook={webhook} />
          </Fix>
        ) : (
          <div class="buttons">
            <Enable webhook={webhook} />
            <a class="button" href={webhookHref(webhook.webhookId, "history")}>
              {t.webhook.seeChanges}
            </a>
          </div>
        )}
      </div>
    );
  }
  if (state === "failing" && failingSince !== null)
    return (
      <div class="note bad">
        <p class="note-title">{t.webhook.failing(failures, formatTime(failingSince))}</p>
        <Cause webhook={webhook} />
        <Said webhook={webhook} />
        <Fix webhook={webhook} types={types} />
        <p class="small">
          <Waiting webhook={webhook} /> {t.webhook.next(nextOf(webhook))} {t.webhook.retried}{" "}
          {t.webhook.outlook(disabledFrom(failingSince))}
        </p>
      </div>
    );
  if (state === "rejecting") return <Rejected webhook={webhook} types={types} />;
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

/** Links to the deliveries that wait. */
function Waiting({ webhook }: { webhook: WebhookDetails }) {
  const waiting = countWaiting(webhook);
  if (waiting === 0) return null;
  return (
    <a href={deliveriesHref(webhook.webhookId, { state: "waiting" })}>
      {t.webhook.deliveriesWait(formatWaiting(webhook), waiting)}
    </a>
  );
}

/** Says why the last attempt failed and what to do about it. */
function Cause({ webhook }: { webhook: WebhookDetails }) {
  const failure = failureOf(webhook);
  const cause = failure && explain(failure);
  if (!failure || !cause) return null;
  return (
    <p>
      <b>{formatOutcome(failure)}.</b> {cause.means} {cause.todo}
    </p>
  );
}

/** Shows the beginning of the server's own response to the last failure, with its status and time. */
function Said({ webhook: { webhookId, lastFailure } }: { webhook: WebhookDetails }) {
  if (!lastFailure) return null;
  const { at, eventId, response, status } = lastFailure;
  const text = response && (firstLines(response.body) || response.error);
  return (
    <div class="said">
      <p class="small">
        {(text ? t.trouble.said : t.trouble.nothingSaid)(
          formatOutcome(lastFailure),
          formatMoment(at),
        )}{" "}
        <a href={deliveryHref(webhookId, eventId)}>{t.test.details}</a>
      </p>
      {response?.location && (
        <p class="small">
          {t.exchange.location} <span class="mono">{response.location}</span>
        </p>
      )}
      {text ? (
        <Text>{text}</Text>
      ) : (
        status !== null && <p class="small">{response ? t.exchange.empty : t.trouble.notStored}</p>
      )}
    </div>
  );
}

interface FixProps extends Props {
  /** Another action. */
  children?: ComponentChildren;
}

/** Statuses that mean that the server, or a gateway before it, wants other credentials. */
const WANTS_HEADERS = [401, 403, 407];
/** Outcomes and statuses that mean that the URL is wrong. */
const WANTS_URL = ["refused", 300, 304, 404, 405, 410, 421, 530];

/** Offers the action that fits the cause, and a test event, whose result says whether it is removed. */
function Fix({ webhook, types, children }: FixProps) {
  if (isReadOnly()) return null;
  const { lastFailure, events, url } = webhook;
  const { outcome = "", status = null } = failureOf(webhook) ?? {};
  const location = lastFailure?.response?.location;
  const isRedirect = location !== undefined && location !== url && status === lastFailure?.status;
  const wantsHeaders = outcome === "answered" && WANTS_HEADERS.includes(status ?? 0);
  const wantsUrl =
    WANTS_URL.includes(outcome) ||
    WANTS_URL.includes(status ?? 0) ||
    (outcome === "unreachable" && status === 403) ||
    (outcome === "answered" && Math.floor((status ?? 0) / 100) === 3);
  const hasFix = isRedirect || wantsHeaders || wantsUrl;
  const [first = "lead.created"] = events;
  const type = events.find((one) => one === lastFailure?.type) ?? first;
  return (
    <TestButton webhook={webhook} type={type} class={hasFix ? "" : "primary"}>
      {isRedirect && <FollowButton webhookId={webhook.webhookId} to={location} class="primary" />}
      {wantsHeaders && (
        <DialogButton label={t.trouble.headers} class="primary" draft="header">
          {(onClose) => <HeadersDialog webhook={webhook} onClose={onClose} />}
        </DialogButton>
      )}
      {wantsUrl && !isRedirect && (
        <DialogButton label={t.trouble.url} class="primary" draft="trouble">
          {(onClose) => (
            <EditDialog webhook={webhook} types={types} draft="trouble" onClose={onClose} />
          )}
        </DialogButton>
      )}
      {children}
    </TestButton>
  );
}

function HeadersDialog({ webhook, onClose }: { webhook: WebhookDetails; onClose(): void }) {
  return (
    <Dialog title={t.headers.title} onClose={onClose}>
      {(close) => (
        <>
          <p>{t.headers.text}</p>
          <Headers webhook={webhook} />
          <div class="buttons">
            <button type="button" onClick={close}>
              {t.close}
            </button>
          </div>
        </>
      )}
    </Dialog>
  );
}

function Enable({ webhook }: { webhook: WebhookDetails }) {
  if (isReadOnly()) return null;
  return (
    <DialogButton label={t.enable.button} class="primary">
      {(onClose) => <EnableDialog webhook={webhook} onClose={onClose} />}
    </DialogButton>
  );
}

/** Lists the event types that the server rejects, with what to do about each. */
function Rejected({ webhook, types }: Props) {
  return (
    <div class="note warn">
      {webhook.rejected.map(({ type, since, ...last }) => {
        const cause = explain(last);
        return (
          <p key={type}>
            <b>{t.webhook.rejecting(t.types[type] ?? type, formatTime(since))}</b>{" "}
            {formatOutcome(last)}. {cause?.means} {cause?.todo}
          </p>
        );
      })}
      <Said webhook={webhook} />
      <Fix webhook={webhook} types={types} />
      <p class="small">
        <Waiting webhook={webhook} /> {t.webhook.rejectingOutlook}
      </p>
    </div>
  );
}

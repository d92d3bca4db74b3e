import type { ComponentChildren } from "preact";
import type { DeliveryView, WebhookView } from "../../../src/history/views.ts";
import { explain, formatMoment, formatOutcome, formatWhen } from "../format.ts";
import { deliveryHref, type Query } from "../route.ts";
import { isReadOnly } from "../session.ts";
import { t } from "../text.ts";
import { isWaiting } from "../webhook.ts";
import { DeliveryState, Moment } from "./basics.tsx";
import { ResendResult, useResends } from "./resend.tsx";
import { RowsTable } from "./rows.tsx";

interface Props {
  webhook: WebhookView;
  deliveries: readonly DeliveryView[];
  /** Shown if there is none. */
  empty?: ComponentChildren;
  /** The filters of the list, which a delivery opens beside. */
  query?: Query;
  /** The event of the delivery that is open; null for none. */
  current?: string | null;
}

/** Deliveries as rows of a table, or as lines where there is little room. */
export function DeliveryRows({ webhook, deliveries, empty, query = {}, current = null }: Props) {
  const { webhookId } = webhook;
  const resends = useResends();
  const { isBusy, fault } = resends;
  // A resent delivery keeps its place, even if the list no longer has it.
  const rows = new Map([...deliveries, ...resends.of(webhookId)].map((one) => [one.eventId, one]));
  if (rows.size === 0) return <>{empty}</>;
  const { state, event, recorded, attempts, lastAnswer } = t.deliveries;
  return (
    <RowsTable columns={[state, event, recorded, attempts, lastAnswer]} fault={fault}>
      {[...rows.values()].toSorted(newestFirst).map((delivery) => (
        <Row
          key={delivery.eventId}
          webhook={webhook}
          delivery={delivery}
          isBusy={isBusy}
          query={query}
          isCurrent={delivery.eventId === current}
          resent={resends.find(webhookId, delivery.eventId)}
          onSendAgain={() => resends.send([{ webhookId, delivery }])}
        />
      ))}
    </RowsTable>
  );
}

const newestFirst = (a: DeliveryView, b: DeliveryView) => (a.eventId < b.eventId ? 1 : -1);

interface RowProps {
  webhook: WebhookView;
  delivery: DeliveryView;
  query: Query;
  isCurrent: boolean;
  isBusy: boolean;
  resent: ReturnType<ReturnType<typeof useResends>["find"]>;
  onSendAgain(): void;
}

function Row({ webhook, delivery, query, isCurrent, isBusy, resent, onSendAgain }: RowProps) {
  const { type, subject, createdAt, attempts, lastAttempt, eventId } = delivery;
  const name = t.types[type] ?? type;
  const waits = delivery.dueAt !== null;
  return (
    <tr class={isCurrent ? "linked current" : "linked"}>
      <td class="row-state">
        <DeliveryState delivery={delivery} />
      </td>
      <th scope="row">
        <a
          href={deliveryHref(webhook.webhookId, eventId, query)}
          data-event={eventId}
          aria-current={isCurrent ? "true" : undefined}
        >
          {name}
        </a>
        {subject ? <span class="small">{subject}</span> : <span class="mono small">{eventId}</span>}
      </th>
      <td class="row-time">
        <Moment at={createdAt} />
      </td>
      <td class="row-attempts">{attempts}</td>
      <td class={lastAttempt || delivery.dueAt ? "row-answer" : "row-answer row-none"}>
        {lastAttempt ? formatOutcome(lastAttempt) : <span class="row-none">–</span>}
        <WhyItWaits webhook={webhook} delivery={delivery} />
      </td>
      <td class="row-action">
        <ResendResult resent={resent} />
        {maySend(webhook, delivery) && (
          <button
            type="button"
            class="quiet"
            // It stays focused, which a disabled button does not.
            aria-disabled={isBusy}
            aria-label={(waits ? t.deliveries.sendNowOf : t.deliveries.sendAgainOf)(
              name,
              formatMoment(createdAt),
            )}
            onClick={onSendAgain}
          >
            {waits ? t.deliveries.sendNow : t.deliveries.sendAgain}
          </button>
        )}
      </td>
    </tr>
  );
}

/** Whether the reader may send it: not a test, and not what is sent in a moment anyway. */
function maySend(webhook: WebhookView, delivery: DeliveryView): boolean {
  if (isReadOnly() || webhook.state === "disabled" || delivery.state === "test") return false;
  return delivery.dueAt === null || isWaiting(delivery) || webhook.state === "failing";
}

interface WhyProps {
  webhook: WebhookView;
  delivery: DeliveryView;
  /** The cause that is shown beside it, and so is not repeated. */
  known?: string;
}

/** When a delivery that waits is attempted next, and why not before. */
export function WhyItWaits({ webhook, delivery, known }: WhyProps) {
  if (delivery.dueAt === null) return null;
  const last = webhook.state === "failing" ? webhook.lastAttempt : null;
  const means = last && explain(last)?.means;
  const cause = means === known ? null : means;
  if (!isWaiting(delivery))
    return cause ? <span class="small">{t.deliveries.soonBecause(lowerFirst(cause))}</span> : null;
  const time = formatWhen(delivery.dueAt, Date.now());
  return (
    <span class="small">
      {cause ? t.deliveries.nextBecause(time, lowerFirst(cause)) : t.deliveries.next(time)}
    </span>
  );
}

function lowerFirst(sentence: string): string {
  return sentence.charAt(0).toLowerCase() + sentence.slice(1);
}

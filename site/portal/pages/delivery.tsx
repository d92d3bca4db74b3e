import { useEffect, useRef } from "preact/hooks";
import type { DeliveryDetails, WebhookDetails } from "../../../src/history/views.ts";
import { readDelivery } from "../api.ts";
import { explain, formatExactTime, formatOutcome } from "../format.ts";
import { useLoad } from "../load.ts";
import { Attempts } from "../parts/attempts.tsx";
import { DeliveryState, type Fact, Facts, Id } from "../parts/basics.tsx";
import { Body } from "../parts/body.tsx";
import { WhyItWaits } from "../parts/delivery-rows.tsx";
import { LoadState, SendFault } from "../parts/faults.tsx";
import { usePageTitle } from "../parts/heading.tsx";
import { ResendResult, useResends } from "../parts/resend.tsx";
import { isReadOnly } from "../session.ts";
import { t } from "../text.ts";
import { isWaiting, nameOf } from "../webhook.ts";

interface Props {
  webhook: WebhookDetails;
  eventId: string;
  /** The address of the list. */
  back: string;
  /** How long events are kept, in days. */
  retentionDays: number;
}

/** Shows one delivery beside the list: its course, its body and its attempts. */
export function Delivery({ webhook, eventId, back, retentionDays }: Props) {
  const id = webhook.webhookId;
  const loaded = useLoad(() => readDelivery(id, eventId), `delivery ${id} ${eventId}`);
  const delivery = loaded.data;
  return (
    <section class="detail" aria-label={t.delivery.title}>
      <p class="crumb">
        <a href={back}>← {t.delivery.back}</a>
      </p>
      {delivery === null ? (
        <LoadState loaded={loaded} />
      ) : (
        <>
          <Head webhook={webhook} delivery={delivery} />
          <LoadState loaded={loaded} />
          <LastAttempt webhook={webhook} delivery={delivery} />
          <Body body={delivery.body} />
          <Attempts webhookId={id} delivery={delivery} />
          <About delivery={delivery} />
          <p class="hint">{t.delivery.kept(retentionDays)}</p>
        </>
      )}
    </section>
  );
}

interface HeadProps {
  webhook: WebhookDetails;
  delivery: DeliveryDetails;
}

function Head({ webhook, delivery }: HeadProps) {
  const { isBusy, fault, send, find } = useResends();
  const { webhookId } = webhook;
  const heading = useRef<HTMLHeadingElement>(null);
  const name = t.types[delivery.type] ?? delivery.type;
  usePageTitle(`${name} – ${nameOf(webhook)}`);
  // The keyboard and screen readers go on here. On a wide screen, the list stays where it is.
  useEffect(() => heading.current?.focus({ preventScroll: true }), []);
  const maySend = !isReadOnly() && delivery.state !== "test" && !delivery.isDisabled;
  return (
    <>
      <div class="head">
        <div class="titled">
          <h2 ref={heading} tabIndex={-1}>
            {name}
          </h2>
          <DeliveryState delivery={delivery} />
        </div>
        {maySend && (
          <div class="buttons">
            <ResendResult resent={find(webhookId, delivery.eventId)} />
            <button
              type="button"
              aria-disabled={isBusy}
              onClick={() => send([{ webhookId, delivery }])}
            >
              {delivery.dueAt === null ? t.deliveries.sendAgain : t.deliveries.sendNow}
            </button>
          </div>
        )}
      </div>
      <p class="detail-time">
        {delivery.subject && <b>{delivery.subject}</b>} {formatExactTime(delivery.createdAt)}
      </p>
      {delivery.state === "test" && <p class="hint">{t.test.once}</p>}
      {delivery.isDisabled && <p class="hint">{t.sendAgain.faults.webhookId}</p>}
      <SendFault fault={fault} />
    </>
  );
}

/** Explains why the last attempt failed and what to do about it; shows nothing if it succeeded. */
function LastAttempt({ webhook, delivery }: HeadProps) {
  const { lastAttempt } = delivery;
  const cause = lastAttempt && explain(lastAttempt);
  if (!lastAttempt || !cause) return null;
  return (
    <div class="note bad">
      <p>
        <b>{formatOutcome(lastAttempt)}.</b> {cause.means} {cause.todo}
      </p>
      <WhyItWaits webhook={webhook} delivery={delivery} known={cause.means} />
    </div>
  );
}

function About({ delivery }: { delivery: DeliveryDetails }) {
  const { dueAt, settledAt, createdAt, attempts, eventId } = delivery;
  const facts: Fact[] = [
    [t.delivery.id, <Id key="">{eventId}</Id>],
    [t.delivery.recorded, formatExactTime(createdAt)],
    [t.deliveries.attempts, String(attempts)],
  ];
  if (settledAt) facts.push([t.delivery.settled, formatExactTime(settledAt)]);
  if (dueAt)
    facts.push([
      t.webhook.nextAttempt,
      isWaiting(delivery) ? formatExactTime(dueAt) : t.webhook.asap,
    ]);
  return <Facts of={facts} />;
}

import type { ComponentChildren } from "preact";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import type { DeliveryView, WebhookDetails } from "../../../src/history/views.ts";
import { listDeliveries, listFailures, type Page } from "../api.ts";
import { formatOutcome, formatRate, formatUtcDay } from "../format.ts";
import { type Loaded, useLoad } from "../load.ts";
import { Ago, Empty, type Fact, Facts, Types } from "../parts/basics.tsx";
import { DeliveryRows } from "../parts/delivery-rows.tsx";
import { LoadState } from "../parts/faults.tsx";
import { Trouble } from "../parts/trouble.tsx";
import { failuresHref, webhookHref } from "../route.ts";
import { t } from "../text.ts";
import { countWaiting, formatWaiting } from "../webhook.ts";
import { Days } from "./days.tsx";
import { NextAttempt } from "./home.tsx";

interface Props {
  webhook: WebhookDetails;
  /** The event types that may be subscribed to. */
  types: readonly WebhookEvent[];
}

/** Shows the problems of a webhook with what failed, its last days, and its newest deliveries. */
export function Overview({ webhook, types }: Props) {
  const isFailing = webhook.state === "failing" || webhook.state === "rejecting";
  return (
    <>
      <Trouble webhook={webhook} types={types} />
      {isFailing && <Failed webhook={webhook} />}
      <div class="overview">
        <About webhook={webhook} />
        <Days webhook={webhook} />
      </div>
      {!isFailing && <Newest webhook={webhook} />}
    </>
  );
}

function About({ webhook }: { webhook: WebhookDetails }) {
  const { lastAttempt: last, retrying, successRate, days } = webhook;
  const facts: Fact[] = [
    [t.webhook.success, successRate === null ? t.webhook.noAttempts : formatRate(successRate)],
    [
      t.webhook.lastAttempt,
      last ? (
        <>
          {formatOutcome(last)}, <Ago at={last.at} />
        </>
      ) : (
        t.none
      ),
    ],
    [
      t.webhook.waiting,
      countWaiting(webhook) === 0
        ? t.webhook.noneWaiting
        : t.webhook.counts(formatWaiting(webhook), retrying),
    ],
    [t.webhook.nextAttempt, <NextAttempt key="" webhook={webhook} />],
  ];
  const timed = days.findLast(({ medianMs, p95Ms }) => medianMs !== null && p95Ms !== null);
  if (timed)
    facts.push([
      t.webhook.responseTime(formatUtcDay(timed.date)),
      t.webhook.responseTimes(
        t.milliseconds(timed.medianMs ?? 0),
        t.milliseconds(timed.p95Ms ?? 0),
      ),
    ]);
  facts.push([t.webhook.events, <Types key="" types={webhook.events} />]);
  return <Facts of={facts} />;
}

/** Number of deliveries of each list. */
const SHOWN = "5";

/** The newest deliveries that failed. */
function Failed({ webhook }: { webhook: WebhookDetails }) {
  const { webhookId } = webhook;
  const query = new URLSearchParams({ webhookId, limit: SHOWN });
  const loaded = useLoad(() => listFailures(query), `failed ${webhookId}`);
  return (
    <Deliveries
      webhook={webhook}
      title={t.webhook.failed}
      all={<a href={failuresHref({ webhookId })}>{t.webhook.allFailed}</a>}
      // A replay may have scheduled them all.
      empty={<Empty title={t.webhook.noneFailed} text={t.webhook.noneFailedText} />}
    >
      {loaded}
    </Deliveries>
  );
}

function Newest({ webhook }: { webhook: WebhookDetails }) {
  const { webhookId } = webhook;
  const query = new URLSearchParams({ limit: SHOWN });
  const loaded = useLoad(() => listDeliveries(webhookId, query), `newest ${webhookId}`);
  return (
    <Deliveries
      webhook={webhook}
      title={t.webhook.newest}
      all={<a href={webhookHref(webhookId, "deliveries")}>{t.deliveries.showAll}</a>}
      empty={<Empty title={t.deliveries.empty} text={t.deliveries.emptyText} />}
    >
      {loaded}
    </Deliveries>
  );
}

interface DeliveriesProps {
  webhook: WebhookDetails;
  title: string;
  /** Leads to the whole list. */
  all: ComponentChildren;
  /** Shown if there is none. */
  empty: ComponentChildren;
  children: Loaded<Page<DeliveryView>>;
}

function Deliveries({ webhook, title, all, empty, children: loaded }: DeliveriesProps) {
  const items = loaded.data?.items;
  return (
    <section>
      <div class="head">
        <h2>{title}</h2>
        {items && items.length > 0 && all}
      </div>
      <LoadState loaded={loaded} />
      {items && <DeliveryRows webhook={webhook} deliveries={items} empty={empty} />}
    </section>
  );
}

import type { WebhookDetails } from "../../../src/history/views.ts";
import { listDeliveries } from "../api.ts";
import { formatDay, formatOutcome, formatRate } from "../format.ts";
import { useLoad } from "../load.ts";
import { Ago, Empty, type Fact, Facts, Types } from "../parts/basics.tsx";
import { DeliveryRows } from "../parts/delivery-rows.tsx";
import { LoadState } from "../parts/faults.tsx";
import { Trouble } from "../parts/trouble.tsx";
import { webhookHref } from "../route.ts";
import { t } from "../text.ts";
import { Days } from "./days.tsx";
import { NextAttempt } from "./home.tsx";

/** Shows the problems of a webhook, its last days, and its newest deliveries. */
export function Overview({ webhook }: { webhook: WebhookDetails }) {
  return (
    <>
      <Trouble webhook={webhook} />
      <div class="overview">
        <About webhook={webhook} />
        <Days webhook={webhook} />
      </div>
      <Newest webhook={webhook} />
    </>
  );
}

function About({ webhook }: { webhook: WebhookDetails }) {
  const { lastAttempt: last, pending, retrying, successRate, days } = webhook;
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
    [t.webhook.waiting, t.webhook.counts(pending, retrying)],
    [t.webhook.nextAttempt, <NextAttempt key="" webhook={webhook} />],
  ];
  const timed = days.findLast(({ medianMs, p95Ms }) => medianMs !== null && p95Ms !== null);
  if (timed)
    facts.push([
      t.webhook.responseTime(formatDay(timed.date)),
      t.webhook.responseTimes(
        t.milliseconds(timed.medianMs ?? 0),
        t.milliseconds(timed.p95Ms ?? 0),
      ),
    ]);
  facts.push([t.webhook.events, <Types key="" types={webhook.events} />]);
  return <Facts of={facts} />;
}

/** Number of deliveries below the chart. */
const NEWEST = "5";

function Newest({ webhook }: { webhook: WebhookDetails }) {
  const { webhookId } = webhook;
  const query = new URLSearchParams({ limit: NEWEST });
  const loaded = useLoad(() => listDeliveries(webhookId, query), `newest ${webhookId}`);
  const items = loaded.data?.items;
  return (
    <section>
      <div class="head">
        <h2>{t.webhook.newest}</h2>
        {items && items.length > 0 && (
          <a href={webhookHref(webhookId, "deliveries")}>{t.deliveries.showAll}</a>
        )}
      </div>
      <LoadState loaded={loaded} />
      {items?.length === 0 ? (
        <Empty title={t.deliveries.empty} text={t.deliveries.emptyText} />
      ) : (
        items && <DeliveryRows webhook={webhook} deliveries={items} />
      )}
    </section>
  );
}

import { DAY_MS } from "../../../src/contract/time.ts";
import type { WebhookDetails } from "../../../src/history/views.ts";
import { formatUtcDay } from "../format.ts";
import { Chart } from "../parts/chart.tsx";
import { deliveriesHref } from "../route.ts";
import { t } from "../text.ts";

const OUTCOMES = ["delivered", "failed", "exhausted"] as const;

/** The attempts of a webhook in the last days, by outcome; nothing if there were none. A day leads to its deliveries. */
export function Days({ webhook: { webhookId, days } }: { webhook: WebhookDetails }) {
  if (!days.some((day) => OUTCOMES.some((outcome) => day[outcome] > 0))) return null;
  const labels = days.map(({ date }) => formatUtcDay(date));
  const milliseconds = (n: number | null) => (n === null ? "–" : t.milliseconds(n));
  return (
    <Chart
      title={t.webhook.byDay}
      column={t.webhook.day}
      labels={labels}
      ticks={labels}
      hrefs={days.map(({ date }) => deliveriesHref(webhookId, periodOfDay(date)))}
      series={OUTCOMES.map((outcome) => ({
        name: t.chartOutcomes[outcome],
        tone: outcome === "failed" ? "retrying" : outcome,
        values: days.map((day) => day[outcome]),
      }))}
      further={[
        { name: t.webhook.median, values: days.map(({ medianMs }) => milliseconds(medianMs)) },
        { name: t.webhook.p95, values: days.map(({ p95Ms }) => milliseconds(p95Ms)) },
      ]}
    />
  );
}

/** The period of a UTC day. */
function periodOfDay(date: string) {
  const since = Date.parse(date);
  return { since: new Date(since).toISOString(), until: new Date(since + DAY_MS).toISOString() };
}

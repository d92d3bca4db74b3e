import type { DayView as Day } from "../../../src/webhooks/views.ts";
import { formatDay } from "../format.ts";
import { Chart } from "../parts/chart.tsx";
import { t } from "../text.ts";

/** The deliveries of a subscription in the last days, by state; nothing if there were none. */
export function Days({ days }: { days: Day[] }) {
  const sumOf = (name: "delivered" | "exhausted" | "cancelled" | "pending") =>
    days.reduce((sum, day) => sum + day[name], 0);
  const series = (["delivered", "exhausted", "cancelled", "pending"] as const)
    .filter((state) => state === "delivered" || state === "exhausted" || sumOf(state) > 0)
    .map((state) => ({
      name: t.chartStates[state],
      tone: state,
      values: days.map((day) => day[state]),
    }));
  if (series.every(({ tone }) => sumOf(tone) === 0)) return null;
  return (
    <section>
      <h2>{t.subscription.lastDays(days.length)}</h2>
      <Chart
        title={t.subscription.byDay}
        summary={t.subscription.chart(sumOf("delivered"), sumOf("exhausted"), sumOf("pending"))}
        column={t.subscription.day}
        labels={days.map(({ date }) => formatDay(date))}
        ticks={[0, Math.floor((days.length - 1) / 2), days.length - 1]}
        series={series}
      />
      {days.some(({ truncated }) => truncated) && <p class="hint">{t.subscription.truncated}</p>}
    </section>
  );
}

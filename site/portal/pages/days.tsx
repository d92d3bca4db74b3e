import type { DayView as Day } from "../../../src/webhooks/views.ts";
import { formatDay } from "../format.ts";
import { Chart } from "../parts/chart.tsx";
import { t } from "../text.ts";

const STATES = ["delivered", "exhausted", "cancelled", "pending"] as const;

/** The deliveries of a subscription in the last days, by state; nothing if there were none. */
export function Days({ days }: { days: Day[] }) {
  const occurs = (state: (typeof STATES)[number]) => days.some((day) => day[state] > 0);
  if (!STATES.some(occurs)) return null;
  return (
    <section>
      <h2>{t.subscription.lastDays(days.length)}</h2>
      <Chart
        title={t.subscription.byDay}
        column={t.subscription.day}
        labels={days.map(({ date }) => formatDay(date))}
        ticks={[0, Math.floor((days.length - 1) / 2), days.length - 1]}
        capped={days.map(({ truncated }) => truncated)}
        series={STATES.filter(
          (state) => state === "delivered" || state === "exhausted" || occurs(state),
        ).map((state) => ({
          name: t.chartStates[state],
          tone: state,
          values: days.map((day) => day[state]),
        }))}
      />
      {days.some(({ truncated }) => truncated) && <p class="hint">{t.subscription.truncated}</p>}
    </section>
  );
}

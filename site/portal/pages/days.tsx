import type { DayView as Day } from "../../../src/history/views.ts";
import { formatDay } from "../format.ts";
import { Chart } from "../parts/chart.tsx";
import { t } from "../text.ts";

const STATES = ["delivered", "exhausted", "cancelled", "pending"] as const;

/** The deliveries of a subscription in the last days, by state; nothing if there were none. */
export function Days({ days }: { days: Day[] }) {
  const occurs = (state: (typeof STATES)[number]) => days.some((day) => day[state] > 0);
  if (!STATES.some(occurs)) return null;
  const labels = days.map(({ date }) => formatDay(date));
  return (
    <div class="days">
      <Chart
        title={t.subscription.byDay}
        column={t.subscription.day}
        labels={labels}
        ticks={labels}
        series={STATES.filter(
          (state) => state === "delivered" || state === "exhausted" || occurs(state),
        ).map((state) => ({
          name: t.chartStates[state],
          tone: state,
          values: days.map((day) => ({ n: day[state], isCapped: day.atLeast.includes(state) })),
        }))}
      />
      {days.some(({ atLeast }) => atLeast.length > 0) && (
        <p class="hint">{t.subscription.counted}</p>
      )}
    </div>
  );
}

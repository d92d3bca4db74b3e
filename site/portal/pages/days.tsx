import type { DayView as Day } from "../../../src/history/views.ts";
import { formatDay } from "../format.ts";
import { Chart } from "../parts/chart.tsx";
import { t } from "../text.ts";

const OUTCOMES = ["delivered", "failed", "exhausted"] as const;

/** The delivery attempts of a subscription in the last days, by outcome; nothing if there were none. */
export function Days({ days }: { days: Day[] }) {
  if (!days.some((day) => OUTCOMES.some((outcome) => day[outcome] > 0))) return null;
  const labels = days.map(({ date }) => formatDay(date));
  return (
    <div class="days">
      <Chart
        title={t.subscription.byDay}
        column={t.subscription.day}
        labels={labels}
        ticks={labels}
        series={OUTCOMES.map((outcome) => ({
          name: t.chartOutcomes[outcome],
          tone: outcome === "failed" ? "pending" : outcome,
          values: days.map((day) => ({ n: day[outcome], isCapped: false })),
        }))}
      />
    </div>
  );
}

import type { DayView as Day } from "../../../src/webhooks/views.ts";
import { formatDay } from "../format.ts";
import { Chart } from "../parts/chart.tsx";
import { t } from "../text.ts";

/** The last days of a subscription: the states of its deliveries, and the number of attempts. */
export function Days({ days }: { days: Day[] }) {
  const labels = days.map(({ date }) => formatDay(date));
  const ticks = [0, Math.floor((days.length - 1) / 2), days.length - 1];
  const valuesOf = (name: "delivered" | "exhausted" | "cancelled" | "pending" | "attempts") =>
    days.map((day) => day[name]);
  const sumOf = (name: "delivered" | "exhausted" | "pending" | "attempts") =>
    valuesOf(name).reduce((sum, value) => sum + value, 0);
  const series = (["delivered", "exhausted", "cancelled", "pending"] as const).map((state) => ({
    name: t.deliveryStates[state],
    tone: state,
    values: valuesOf(state),
  }));
  return (
    <section>
      <h2>{t.subscription.lastDays(days.length)}</h2>
      <div class="charts">
        <Chart
          title={t.subscription.byDay}
          summary={t.subscription.chart(sumOf("delivered"), sumOf("exhausted"), sumOf("pending"))}
          column={t.subscription.day}
          {...{ labels, ticks, series }}
        />
        <Chart
          title={t.subscription.attemptsByDay}
          summary={t.subscription.attemptsChart(sumOf("attempts"))}
          column={t.subscription.day}
          {...{ labels, ticks }}
          series={[
            { name: t.subscription.attempts, tone: "attempts", values: valuesOf("attempts") },
          ]}
        />
      </div>
      {days.some(({ truncated }) => truncated) && <p class="hint">{t.subscription.truncated}</p>}
    </section>
  );
}

import type { WebhookView } from "../../../src/history/views.ts";

const HEIGHT = 20;
const COLUMN = 7;
const BAR = 5;

/** The attempts of the last days as small bars: what failed stands above what succeeded. */
export function Sparkline({ days }: Pick<WebhookView, "days">) {
  const columns = days.map(({ date, delivered, failed, exhausted }) => ({
    date,
    delivered,
    failed: failed + exhausted,
  }));
  const highest = Math.max(...columns.map(({ delivered, failed }) => delivered + failed));
  if (highest <= 0) return null;
  // The least number of attempts is visible, too.
  const heightOf = (n: number) => (n === 0 ? 0 : Math.max(1.5, (n / highest) * HEIGHT));
  return (
    <svg class="sparkline" aria-hidden="true" viewBox={`0 0 ${days.length * COLUMN} ${HEIGHT + 3}`}>
      {columns.map(({ date, delivered, failed }, i) => {
        const below = heightOf(delivered);
        const above = heightOf(failed);
        const base = HEIGHT + 3;
        return (
          <g key={date}>
            <rect class="delivered" x={i * COLUMN} y={base - below} width={BAR} height={below} />
            <rect
              class="exhausted"
              x={i * COLUMN}
              y={base - below - above}
              width={BAR}
              height={above}
            />
          </g>
        );
      })}
    </svg>
  );
}

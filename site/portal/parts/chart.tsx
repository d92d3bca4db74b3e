import { useId } from "preact/hooks";
import { formatNumber } from "../format.ts";
import { t } from "../text.ts";

/** One series: its name, its colour, its count in each column. */
export interface Series {
  name: string;
  tone: string;
  values: number[];
}

const HEIGHT = 100;
const COLUMN = 10;
/** The height of a column's bar. */
const BAR = 0.64;

/**
 * Counts over time as stacked bars, with the numbers as a table for those who want them or cannot
 * see the bars.
 *
 * @param summary describes the chart in words.
 * @param labels the name of each column, for the table.
 * @param ticks the indexes of the columns that are labelled under the chart.
 */
export function Chart(props: {
  title: string;
  summary: string;
  column: string;
  labels: string[];
  ticks: number[];
  series: Series[];
}) {
  const { title, summary, column, labels, ticks, series } = props;
  const id = useId();
  const totals = labels.map((_, i) =>
    series.reduce((sum, { values }) => sum + (values[i] ?? 0), 0),
  );
  const max = Math.max(1, ...totals);
  return (
    <figure class="chart">
      <figcaption>
        <span class="chart-title" id={id}>
          {title}
        </span>
        <ul class="legend">
          {series.map(({ name, tone, values }) => (
            <li key={tone}>
              <span class={`swatch ${tone}`} />
              {name} <b>{formatNumber(values.reduce((sum, value) => sum + value, 0))}</b>
            </li>
          ))}
        </ul>
      </figcaption>
      <div class="plot">
        <span class="scale" aria-hidden="true">
          {formatNumber(max)}
        </span>
        <svg
          role="img"
          aria-label={summary}
          viewBox={`0 0 ${labels.length * COLUMN} ${HEIGHT}`}
          preserveAspectRatio="none"
        >
          {labels.map((label, i) => (
            <Column key={label} place={i} label={label} max={max} series={series} />
          ))}
        </svg>
        <div class="ticks" aria-hidden="true">
          {ticks.map((i) => (
            <span key={i}>{labels[i]}</span>
          ))}
        </div>
      </div>
      <details>
        <summary>
          {t.asTable}
          <span class="hidden"> ({title})</span>
        </summary>
        <div class="numbers">
          <table aria-labelledby={id}>
            <thead>
              <tr>
                <th scope="col">{column}</th>
                {series.map(({ name }) => (
                  <th scope="col" key={name}>
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {labels.map((label, i) => (
                <tr key={label}>
                  <th scope="row">{label}</th>
                  {series.map(({ name, values }) => (
                    <td key={name}>{formatNumber(values[i] ?? 0)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </figure>
  );
}

function Column(props: { place: number; label: string; max: number; series: Series[] }) {
  const { place, label, max, series } = props;
  const x = (place + (1 - BAR) / 2) * COLUMN;
  let top = HEIGHT;
  const bars = series.map(({ name, tone, values }) => {
    const value = values[place] ?? 0;
    const height = (value / max) * HEIGHT;
    top -= height;
    return (
      <rect key={tone} class={tone} x={x} y={top} width={COLUMN * BAR} height={height}>
        <title>{`${label}, ${name}: ${formatNumber(value)}`}</title>
      </rect>
    );
  });
  return <g>{bars}</g>;
}

import { useId } from "preact/hooks";
import { type Count, formatCount, sum } from "../format.ts";
import { t } from "../text.ts";

/** One series: its name, its colour, its count in each column. */
export interface Series {
  name: string;
  tone: string;
  values: Count[];
}

const HEIGHT = 100;
const COLUMN = 10;
/** The height of a column's bar. */
const BAR = 0.64;

const NONE: Count = { n: 0, isCapped: false };
/** The least that a chart is high. */
const ONE: Count = { n: 1, isCapped: false };

interface Props {
  title: string;
  /** What a column is, for the table. */
  column: string;
  /** The name of each column, for the table. */
  labels: string[];
  /** What stands under the chart, from left to right. */
  ticks: string[];
  series: Series[];
}

/**
 * Counts over time as stacked bars, with the numbers as a table for those who want them or cannot
 * see the bars.
 */
export function Chart({ title, column, labels, ticks, series }: Props) {
  const id = useId();
  const columns = labels.map((_, i) => sum(series.map(({ values }) => values[i] ?? NONE)));
  const highest = columns.reduce((max, one) => (one.n > max.n ? one : max), ONE);
  const total = ({ values }: Series) => formatCount(sum(values));
  return (
    <figure class="chart">
      <figcaption>
        <span class="chart-title" id={id}>
          {title}
        </span>
        <ul class="legend">
          {series.map((one) => (
            <li key={one.tone}>
              <span class={`swatch ${one.tone}`} />
              {one.name} <b>{total(one)}</b>
            </li>
          ))}
        </ul>
      </figcaption>
      <div class="plot">
        <span class="scale" aria-hidden="true">
          {formatCount(highest)}
        </span>
        <svg
          role="img"
          aria-label={`${title}. ${series.map((one) => `${one.name} ${total(one)}`).join(", ")}`}
          viewBox={`0 0 ${labels.length * COLUMN} ${HEIGHT}`}
          preserveAspectRatio="none"
        >
          {labels.map((label, i) => (
            <Column key={label} {...{ place: i, label, max: highest.n, series }} />
          ))}
        </svg>
        <div class={ticks.length === labels.length ? "ticks each" : "ticks"} aria-hidden="true">
          {ticks.map((tick) => (
            <span key={tick}>{tick}</span>
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
                    <td key={name}>{formatCount(values[i] ?? NONE)}</td>
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

interface ColumnProps {
  place: number;
  label: string;
  max: number;
  series: Series[];
}

function Column({ place, label, max, series }: ColumnProps) {
  const x = (place + (1 - BAR) / 2) * COLUMN;
  let top = HEIGHT;
  const bars = series.map(({ name, tone, values }) => {
    const count = values[place] ?? NONE;
    const height = (count.n / max) * HEIGHT;
    top -= height;
    return (
      <rect key={tone} class={tone} x={x} y={top} width={COLUMN * BAR} height={height}>
        <title>{`${label}, ${name}: ${formatCount(count)}`}</title>
      </rect>
    );
  });
  return <g>{bars}</g>;
}

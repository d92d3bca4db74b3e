import type { Distances, Read } from "./reads.ts";

const WIDTH = 680;
const HEIGHT = 360;
const MARGIN = { top: 24, right: 190, bottom: 48, left: 56 };

const LINES: { read: Read; name: string; color: string }[] = [
  { read: "naive", name: "naive: three in a row", color: "#b91c1c" },
  { read: "cold", name: "cold: key not seen yet", color: "#b45309" },
  { read: "hot", name: "hot: gate and data at once", color: "#15803d" },
];

/** An SVG of the duration of a read by the round-trip time to the database and the gates. */
export function drawReads({ roundTripsMs, times }: Distances): string {
  const xMax = Math.max(...roundTripsMs);
  const yMax = Math.ceil(Math.max(...times.naive) / 50) * 50;
  const x = (ms: number) => MARGIN.left + (ms / xMax) * (WIDTH - MARGIN.left - MARGIN.right);
  const y = (ms: number) =>
    HEIGHT - MARGIN.bottom - (ms / yMax) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  const ticks = Array.from({ length: yMax / 50 + 1 }, (_, i) => i * 50);
  const [left, right, bottom] = [MARGIN.left, WIDTH - MARGIN.right, HEIGHT - MARGIN.bottom];
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="Time of a read over the simulated round-trip time">
  <rect width="${WIDTH}" height="${HEIGHT}" fill="#ffffff"/>
${ticks
  .map(
    (tick) =>
      `  <path d="M${left} ${round(y(tick))}H${right}" stroke="#e5e7eb"/><text x="${left - 8}" y="${round(y(tick) + 4)}" text-anchor="end" fill="#374151">${tick}</text>`,
  )
  .join("\n")}
${roundTripsMs
  .map(
    (ms) =>
      `  <text x="${round(x(ms))}" y="${bottom + 18}" text-anchor="middle" fill="#374151">${ms}</text>`,
  )
  .join("\n")}
  <text x="${(left + right) / 2}" y="${HEIGHT - 10}" text-anchor="middle" fill="#111827">round trip to D1 and the Durable Objects, ms</text>
  <text x="${left}" y="14" fill="#111827">median time of GET /v1/automations, ms</text>
${LINES.map(({ read, name, color }) => {
  const points = roundTripsMs.map((ms, i) => `${round(x(ms))},${round(y(times[read][i] ?? 0))}`);
  const [endX, endY] = points.at(-1)?.split(",") ?? [];
  return `  <polyline points="${points.join(" ")}" fill="none" stroke="${color}" stroke-width="2"/>
  <text x="${Number(endX) + 8}" y="${Number(endY) + 4}" fill="${color}">${name}</text>`;
}).join("\n")}
</svg>
`;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

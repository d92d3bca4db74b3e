import type { Samples } from "./figures.ts";
import { measureLife } from "./life.ts";
import type { Extent } from "./setting.ts";

/** Measures the units that Cloudflare bills for an event, a page and a sweep, which `price.ts` multiplies. */
export async function measureMonth(extent: Extent): Promise<Samples> {
  const { alone, together, page, sweep } = await measureLife(extent);
  return {
    rows_written_life_alone: [alone.rowsWritten],
    rows_written_life: [together.rowsWritten],
    month_rows_read_alone: [alone.rowsRead],
    month_messages_alone: [alone.messages],
    month_lines_alone: [alone.lines],
    month_rows_read_together: [together.rowsRead],
    month_messages_together: [together.messages],
    month_lines_together: [together.lines],
    month_rows_read_page: [page.rowsRead],
    month_lines_page: [page.lines],
    month_rows_read_sweep: [sweep.rowsRead],
    month_rows_written_sweep: [sweep.rowsWritten],
    month_lines_sweep: [sweep.lines],
  };
}

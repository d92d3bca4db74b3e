import type { ComponentChildren } from "preact";
import type { Fault } from "../api.ts";
import { SendFault } from "./faults.tsx";

interface Props {
  /** The headings of the columns. A last one has the actions. */
  columns: readonly string[];
  /** Why nothing could be resent. */
  fault: Fault | null;
  /** The rows. */
  children: ComponentChildren;
}

/** A table of deliveries that can be resent. Its rows become lines where there is little room. */
export function RowsTable({ columns, fault, children }: Props) {
  return (
    <>
      <div class="send-fault">
        <SendFault fault={fault} />
      </div>
      <table class="rows">
        <thead>
          <tr>
            {columns.map((column) => (
              <th scope="col" key={column}>
                {column}
              </th>
            ))}
            <td />
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </>
  );
}

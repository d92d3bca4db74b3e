import { useEffect, useRef, useState } from "preact/hooks";
import { decodeCursor } from "../../src/contract/cursor.ts";
import { eventTimeOf } from "../../src/contract/ids.ts";
import type { Page } from "./api.ts";
import { type Loaded, useLoad } from "./load.ts";

type ListName = "deliveries" | "failures";

/** The pause between two calls, so that one search does not use up the portal's requests of a minute. */
const PAUSE_MS = 300;

/** A page of deliveries, with the progress of its search. */
export interface Search<Delivery> extends Loaded<Page<Delivery>> {
  isLooking: boolean;
  /** The time of the oldest delivery looked at so far; null if the first page was enough. */
  lookedBackTo: number | null;
  stop(): void;
  /** Continues the search after a stop. */
  goOn(): void;
}

/** The progress of a search. */
interface Trail {
  key: string;
  /** The cursor of the page to examine next or, after a match, of the page of that match. */
  cursor: string | null;
  isStopped: boolean;
}

/**
 * Keeps a page of deliveries up to date. A call examines a limited number of deliveries: while none of
 * them matches, looks on among older ones, until one does, there are none left, or the reader stops it.
 *
 * @param list reads a page.
 * @param name of the list, in cursors.
 * @param of identifies the list among those of this name.
 * @param query the filters and the page.
 */
export function useDeliveries<Delivery>(
  list: (query: URLSearchParams) => Promise<Page<Delivery>>,
  name: ListName,
  of: string,
  query: URLSearchParams,
): Search<Delivery> {
  const key = query.toString();
  const trail = useRef<Trail>({ key, cursor: null, isStopped: false });
  if (trail.current.key !== key) trail.current = { key, cursor: null, isStopped: false };
  const turn = useRef(0);
  const [looking, setLooking] = useState<Trail | null>(null);
  // Leaving the page ends the search.
  useEffect(() => () => void turn.current++, []);

  const loaded = useLoad(async () => {
    const own = trail.current;
    const mine = ++turn.current;
    const first = await list(query);
    // The match is newer than the deliveries that were examined.
    if (first.items.length > 0 || first.nextCursor === null) return first;
    own.cursor ??= first.nextCursor;
    try {
      while (mine === turn.current && own === trail.current && !own.isStopped) {
        setLooking({ ...own });
        const page = await list(at(query, own.cursor));
        if (page.items.length > 0 || page.nextCursor === null) return page;
        own.cursor = page.nextCursor;
        await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      }
    } finally {
      if (mine === turn.current) setLooking(null);
    }
    return { items: [], nextCursor: own.cursor };
  }, `${name} ${of} ${key}`);

  const { cursor, isStopped } = trail.current;
  return {
    ...loaded,
    isLooking: looking?.key === key && !isStopped,
    lookedBackTo: cursor === null ? null : timeOf(name, cursor),
    stop: () => {
      trail.current.isStopped = true;
      setLooking(null);
    },
    goOn: () => {
      trail.current.isStopped = false;
      loaded.reload();
    },
  };
}

function at(query: URLSearchParams, cursor: string): URLSearchParams {
  const page = new URLSearchParams(query);
  page.set("cursor", cursor);
  return page;
}

/** Returns the time at which a cursor is: that of an event or, in a search for leads, of a lead. */
function timeOf(name: ListName, cursor: string): number | null {
  const position = decodeCursor(name, cursor);
  return position && (position.at || eventTimeOf(position.id));
}

import { EVENTS } from "./events.ts";
import type { Fault } from "./fault.ts";
import { FLOOR } from "./floor.ts";
import { RECORDS } from "./records.ts";
import { WAYS_IN } from "./ways-in.ts";

/** Faults of one line, spread over every folder of `src`. */
export const FAULTS: readonly Fault[] = [...FLOOR, ...WAYS_IN, ...RECORDS, ...EVENTS];

/** The least that a Worker with Hono can be: what its bundle and its start cost is Hono's own. */
import { Hono } from "hono";

export default new Hono().get("/", (c) => c.text("hello"));

/** The smallest Worker with Hono: the size and startup time of its bundle are Hono's own. */
import { Hono } from "hono";

export default new Hono().get("/", (c) => c.text("hello"));

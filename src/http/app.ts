import { authenticate } from "./authentication.ts";
import { drainBody } from "./body.ts";
import { newApp } from "./context.ts";
import { docs } from "./docs.ts";
import { endSlowReads, finishResponse, handleError, handleNotFound } from "./finish-response.ts";
import { healthCheck } from "./health-check.ts";
import { serveMcp } from "./mcp.ts";
import { platform } from "./platform.ts";
import { portal } from "./portal/portal.ts";
import { automationRoutes } from "./routes/automations.ts";
import { leadRoutes } from "./routes/leads.ts";
import { runRoutes } from "./routes/runs.ts";
import { webhookRoutes } from "./routes/webhooks.ts";

/*
 * To add a route: a `createRoute` and its handler in the noun's file in `routes/`, with an example from `routes/examples.ts`
 * or `src/events/samples.ts`, and the query in `src/records/` or `src/subscriptions/`. Its `middleware` has `served(…)`
 * with a `Feature` of `src/contract/served.ts`. Unless `SERVED_ROUTES` lists that, the route responds with 404, and MCP
 * does not offer it as a tool.
 */

export const app = newApp();

app.onError(handleError);
app.notFound(handleNotFound);
// Sets the headers that every response has, and logs the request.
app.use(finishResponse);
// Gives up a read that takes more than ten seconds.
app.use(endSlowReads);
// Keeps the connection usable if the request body is left unread.
app.use(drainBody);

// Authenticates, and limits the rate of each key (rate-limit/key-gate.ts).
app.use("/v1/*", authenticate);
app.route("/v1", automationRoutes);
app.route("/v1", leadRoutes);
app.route("/v1", runRoutes);
app.route("/v1", webhookRoutes);

serveMcp(app);

app.route("/", platform);
app.route("/", portal);
app.route("/", healthCheck);
app.route("/", docs);

import { authenticate } from "./authentication.ts";
import { newApp } from "./context.ts";
import { docs } from "./docs.ts";
import { drainBody } from "./drain-body.ts";
import { endSlowReads } from "./end-slow-reads.ts";
import { answerError, answerNotFound, envelope } from "./envelope.ts";
import { healthCheck } from "./health-check.ts";
import { serveMcp } from "./mcp.ts";
import { platform } from "./platform.ts";
import { portal } from "./portal/portal.ts";
import { automationRoutes } from "./routes/automations.ts";
import { leadRoutes } from "./routes/leads.ts";
import { runRoutes } from "./routes/runs.ts";
import { webhookRoutes } from "./routes/webhooks.ts";

export const app = newApp();

app.onError(answerError);
app.notFound(answerNotFound);
app.use(drainBody);
app.use(envelope);
app.use(endSlowReads);

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

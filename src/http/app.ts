import { authenticate } from "./authentication.ts";
import { newApp } from "./context.ts";
import { endSlowReads } from "./deadline.ts";
import { docs } from "./docs.ts";
import { answerError, answerNotFound, envelope } from "./envelope.ts";
import { health } from "./health-check.ts";
import { serveMcp } from "./mcp.ts";
import { platform } from "./platform.ts";
import { portal } from "./portal/portal.ts";
import { automations } from "./routes/automations.ts";
import { leads } from "./routes/leads.ts";
import { runs } from "./routes/runs.ts";
import { webhooks } from "./routes/webhooks.ts";
import { drainBody } from "./unread.ts";

export const app = newApp();

app.onError(answerError);
app.notFound(answerNotFound);
app.use(drainBody);
app.use(envelope);
app.use(endSlowReads);

app.use("/v1/*", authenticate);
app.route("/v1", automations);
app.route("/v1", leads);
app.route("/v1", runs);
app.route("/v1", webhooks);

serveMcp(app);

app.route("/", platform);
app.route("/", portal);
app.route("/", health);
app.route("/", docs);

-- Made by src/workspaces/moving/triggers.ts.
CREATE TRIGGER `subscriptions_move_insert` AFTER INSERT ON `subscriptions`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'webhook', json_array(NEW.id) FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `subscriptions_move_update` AFTER UPDATE ON `subscriptions`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'webhook', json_array(NEW.id) FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `subscriptions_move_delete` AFTER DELETE ON `subscriptions`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = OLD.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = OLD.workspace_id AND m.state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'webhook', json_array(OLD.id) FROM moves m WHERE m.workspace_id = OLD.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `automations_move_insert` AFTER INSERT ON `automations`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'automation', json_array(NEW.id) FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `automations_move_update` AFTER UPDATE ON `automations`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'automation', json_array(NEW.id) FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `automations_move_delete` AFTER DELETE ON `automations`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = OLD.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = OLD.workspace_id AND m.state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'automation', json_array(OLD.id) FROM moves m WHERE m.workspace_id = OLD.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `leads_move_insert` AFTER INSERT ON `leads`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'lead', json_array(NEW.id) FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `leads_move_update` AFTER UPDATE ON `leads`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'lead', json_array(NEW.id) FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `leads_move_delete` AFTER DELETE ON `leads`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = OLD.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = OLD.workspace_id AND m.state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'lead', json_array(OLD.id) FROM moves m WHERE m.workspace_id = OLD.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `runs_move_insert` AFTER INSERT ON `runs`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'run', json_array(NEW.id) FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `runs_move_update` AFTER UPDATE ON `runs`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'run', json_array(NEW.id) FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `runs_move_delete` AFTER DELETE ON `runs`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = OLD.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = OLD.workspace_id AND m.state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'run', json_array(OLD.id) FROM moves m WHERE m.workspace_id = OLD.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `events_move_insert` AFTER INSERT ON `events`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'event', json_array(NEW.workspace_id, NEW.id) FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `events_move_update` AFTER UPDATE ON `events`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'event', json_array(NEW.workspace_id, NEW.id) FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `events_move_delete` AFTER DELETE ON `events`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = OLD.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = OLD.workspace_id AND m.state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'event', json_array(OLD.workspace_id, OLD.id) FROM moves m WHERE m.workspace_id = OLD.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `deliveries_move_insert` AFTER INSERT ON `deliveries`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'delivery', json_array(NEW.subscription_id, NEW.event_id) FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `deliveries_move_update` AFTER UPDATE ON `deliveries`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'delivery', json_array(NEW.subscription_id, NEW.event_id) FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `deliveries_move_delete` AFTER DELETE ON `deliveries`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = OLD.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = OLD.workspace_id AND m.state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'delivery', json_array(OLD.subscription_id, OLD.event_id) FROM moves m WHERE m.workspace_id = OLD.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `notices_move_insert` AFTER INSERT ON `notices`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'notice', json_array(NEW.workspace_id, NEW.subscription_id, NEW.failing_since, NEW.kind) FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `notices_move_update` AFTER UPDATE ON `notices`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'notice', json_array(NEW.workspace_id, NEW.subscription_id, NEW.failing_since, NEW.kind) FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `notices_move_delete` AFTER DELETE ON `notices`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = OLD.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = OLD.workspace_id AND m.state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'notice', json_array(OLD.workspace_id, OLD.subscription_id, OLD.failing_since, OLD.kind) FROM moves m WHERE m.workspace_id = OLD.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `emails_move_insert` AFTER INSERT ON `emails`
WHEN EXISTS (SELECT 1 FROM notices p JOIN moves m ON m.workspace_id = p.workspace_id
    WHERE p.id = NEW.notice_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM notices p JOIN moves m ON m.workspace_id = p.workspace_id
    WHERE p.id = NEW.notice_id AND m.state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'notice', json_array(p.workspace_id, p.subscription_id, p.failing_since, p.kind) FROM notices p JOIN moves m ON m.workspace_id = p.workspace_id
    WHERE p.id = NEW.notice_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `emails_move_update` AFTER UPDATE ON `emails`
WHEN EXISTS (SELECT 1 FROM notices p JOIN moves m ON m.workspace_id = p.workspace_id
    WHERE p.id = NEW.notice_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM notices p JOIN moves m ON m.workspace_id = p.workspace_id
    WHERE p.id = NEW.notice_id AND m.state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'notice', json_array(p.workspace_id, p.subscription_id, p.failing_since, p.kind) FROM notices p JOIN moves m ON m.workspace_id = p.workspace_id
    WHERE p.id = NEW.notice_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `workspaces_move_update` AFTER UPDATE OF id, name, admin_emails, access_granted, data_key, webhooks_max, created_at ON `workspaces`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = NEW.id AND state IN ('closed', 'arrived', 'gone', 'left'))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving');
END;

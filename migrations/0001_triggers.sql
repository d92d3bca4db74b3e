-- Made by src/workspaces/moving/triggers.ts.
CREATE TRIGGER `subscriptions_move_insert` AFTER INSERT ON `subscriptions`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IN ('closed', 'arrived') OR w.database IS NOT NULL AND m.state IS NOT 'arriving');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'webhook', json_array(NEW.id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `subscriptions_move_update` AFTER UPDATE ON `subscriptions`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IN ('closed', 'arrived') OR w.database IS NOT NULL AND m.state IS NOT 'arriving');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'webhook', json_array(NEW.id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `subscriptions_move_delete` AFTER DELETE ON `subscriptions`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND m.state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'webhook', json_array(OLD.id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `automations_move_insert` AFTER INSERT ON `automations`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IN ('closed', 'arrived') OR w.database IS NOT NULL AND m.state IS NOT 'arriving');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'automation', json_array(NEW.id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `automations_move_update` AFTER UPDATE ON `automations`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IN ('closed', 'arrived') OR w.database IS NOT NULL AND m.state IS NOT 'arriving');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'automation', json_array(NEW.id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `automations_move_delete` AFTER DELETE ON `automations`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND m.state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'automation', json_array(OLD.id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `leads_move_insert` AFTER INSERT ON `leads`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IN ('closed', 'arrived') OR w.database IS NOT NULL AND m.state IS NOT 'arriving');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'lead', json_array(NEW.id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `leads_move_update` AFTER UPDATE ON `leads`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IN ('closed', 'arrived') OR w.database IS NOT NULL AND m.state IS NOT 'arriving');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'lead', json_array(NEW.id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `leads_move_delete` AFTER DELETE ON `leads`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND m.state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'lead', json_array(OLD.id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `erased_leads_move_insert` AFTER INSERT ON `erased_leads`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IN ('closed', 'arrived') OR w.database IS NOT NULL AND m.state IS NOT 'arriving');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'erased_lead', json_array(NEW.workspace_id, NEW.id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `erased_leads_move_update` AFTER UPDATE ON `erased_leads`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IN ('closed', 'arrived') OR w.database IS NOT NULL AND m.state IS NOT 'arriving');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'erased_lead', json_array(NEW.workspace_id, NEW.id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `erased_leads_move_delete` AFTER DELETE ON `erased_leads`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND m.state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'erased_lead', json_array(OLD.workspace_id, OLD.id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `runs_move_insert` AFTER INSERT ON `runs`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IN ('closed', 'arrived') OR w.database IS NOT NULL AND m.state IS NOT 'arriving');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'run', json_array(NEW.id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `runs_move_update` AFTER UPDATE ON `runs`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IN ('closed', 'arrived') OR w.database IS NOT NULL AND m.state IS NOT 'arriving');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'run', json_array(NEW.id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `runs_move_delete` AFTER DELETE ON `runs`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND m.state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'run', json_array(OLD.id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `events_move_insert` AFTER INSERT ON `events`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IN ('closed', 'arrived') OR w.database IS NOT NULL AND m.state IS NOT 'arriving');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'event', json_array(NEW.workspace_id, NEW.id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `events_move_update` AFTER UPDATE ON `events`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IN ('closed', 'arrived') OR w.database IS NOT NULL AND m.state IS NOT 'arriving');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'event', json_array(NEW.workspace_id, NEW.id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `events_move_delete` AFTER DELETE ON `events`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND m.state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'event', json_array(OLD.workspace_id, OLD.id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `deliveries_move_insert` AFTER INSERT ON `deliveries`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IN ('closed', 'arrived') OR w.database IS NOT NULL AND m.state IS NOT 'arriving');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'delivery', json_array(NEW.subscription_id, NEW.event_id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `deliveries_move_update` AFTER UPDATE ON `deliveries`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IN ('closed', 'arrived') OR w.database IS NOT NULL AND m.state IS NOT 'arriving');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'delivery', json_array(NEW.subscription_id, NEW.event_id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `deliveries_move_delete` AFTER DELETE ON `deliveries`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND m.state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'delivery', json_array(OLD.subscription_id, OLD.event_id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `notices_move_insert` AFTER INSERT ON `notices`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IN ('closed', 'arrived') OR w.database IS NOT NULL AND m.state IS NOT 'arriving');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'notice', json_array(NEW.workspace_id, NEW.subscription_id, NEW.since, NEW.kind) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `notices_move_update` AFTER UPDATE ON `notices`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IN ('closed', 'arrived') OR w.database IS NOT NULL AND m.state IS NOT 'arriving');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'notice', json_array(NEW.workspace_id, NEW.subscription_id, NEW.since, NEW.kind) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `notices_move_delete` AFTER DELETE ON `notices`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND m.state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'notice', json_array(OLD.workspace_id, OLD.subscription_id, OLD.since, OLD.kind) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `workspaces_move_update` AFTER UPDATE OF id, name, admin_emails, access_granted, data_key, webhooks_max, created_at ON `workspaces`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.id AND (m.state IN ('closed', 'arrived') OR w.database IS NOT NULL AND m.state IS NOT 'arriving'))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving');
END;

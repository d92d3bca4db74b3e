CREATE TABLE `changes` (
	`number` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`workspace_id` text NOT NULL,
	`kind` text NOT NULL,
	`id` text NOT NULL,
	`event_id` text NOT NULL
);
--> statement-breakpoint
CREATE INDEX `changes_of_workspace` ON `changes` (`workspace_id`,`number`);--> statement-breakpoint
CREATE TABLE `moves` (
	`workspace_id` text PRIMARY KEY NOT NULL,
	`state` text NOT NULL,
	`other` text NOT NULL,
	`position` text,
	`since` integer NOT NULL,
	`moved_by` text,
	`moved_until` integer DEFAULT 0 NOT NULL
);

--> statement-breakpoint
CREATE TRIGGER `automations_move_insert` AFTER INSERT ON `automations`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT NEW.workspace_id, 'automation', NEW.id, '' FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `automations_move_update` AFTER UPDATE ON `automations`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT NEW.workspace_id, 'automation', NEW.id, '' FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `automations_move_delete` AFTER DELETE ON `automations`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = OLD.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves WHERE workspace_id = OLD.workspace_id AND state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT OLD.workspace_id, 'automation', OLD.id, '' FROM moves WHERE workspace_id = OLD.workspace_id AND state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `leads_move_insert` AFTER INSERT ON `leads`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT NEW.workspace_id, 'lead', NEW.id, '' FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `leads_move_update` AFTER UPDATE ON `leads`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT NEW.workspace_id, 'lead', NEW.id, '' FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `leads_move_delete` AFTER DELETE ON `leads`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = OLD.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves WHERE workspace_id = OLD.workspace_id AND state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT OLD.workspace_id, 'lead', OLD.id, '' FROM moves WHERE workspace_id = OLD.workspace_id AND state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `runs_move_insert` AFTER INSERT ON `runs`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT NEW.workspace_id, 'run', NEW.id, '' FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `runs_move_update` AFTER UPDATE ON `runs`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT NEW.workspace_id, 'run', NEW.id, '' FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `runs_move_delete` AFTER DELETE ON `runs`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = OLD.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves WHERE workspace_id = OLD.workspace_id AND state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT OLD.workspace_id, 'run', OLD.id, '' FROM moves WHERE workspace_id = OLD.workspace_id AND state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `subscriptions_move_insert` AFTER INSERT ON `subscriptions`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT NEW.workspace_id, 'webhook', NEW.id, '' FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `subscriptions_move_update` AFTER UPDATE ON `subscriptions`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT NEW.workspace_id, 'webhook', NEW.id, '' FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `subscriptions_move_delete` AFTER DELETE ON `subscriptions`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = OLD.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves WHERE workspace_id = OLD.workspace_id AND state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT OLD.workspace_id, 'webhook', OLD.id, '' FROM moves WHERE workspace_id = OLD.workspace_id AND state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `events_move_insert` AFTER INSERT ON `events`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT NEW.workspace_id, 'event', NEW.id, '' FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `events_move_update` AFTER UPDATE ON `events`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT NEW.workspace_id, 'event', NEW.id, '' FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `events_move_delete` AFTER DELETE ON `events`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = OLD.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves WHERE workspace_id = OLD.workspace_id AND state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT OLD.workspace_id, 'event', OLD.id, '' FROM moves WHERE workspace_id = OLD.workspace_id AND state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `deliveries_move_insert` AFTER INSERT ON `deliveries`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT NEW.workspace_id, 'delivery', NEW.subscription_id, NEW.event_id FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `deliveries_move_update` AFTER UPDATE ON `deliveries`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT NEW.workspace_id, 'delivery', NEW.subscription_id, NEW.event_id FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `deliveries_move_delete` AFTER DELETE ON `deliveries`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = OLD.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves WHERE workspace_id = OLD.workspace_id AND state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT OLD.workspace_id, 'delivery', OLD.subscription_id, OLD.event_id FROM moves WHERE workspace_id = OLD.workspace_id AND state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `notices_move_insert` AFTER INSERT ON `notices`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT NEW.workspace_id, 'notice', NEW.id, '' FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `notices_move_update` AFTER UPDATE ON `notices`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT NEW.workspace_id, 'notice', NEW.id, '' FROM moves WHERE workspace_id = NEW.workspace_id AND state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `notices_move_delete` AFTER DELETE ON `notices`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = OLD.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves WHERE workspace_id = OLD.workspace_id AND state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT OLD.workspace_id, 'notice', OLD.id, '' FROM moves WHERE workspace_id = OLD.workspace_id AND state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `emails_move_insert` AFTER INSERT ON `emails`
WHEN EXISTS (SELECT 1 FROM moves)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM notices n JOIN moves m ON m.workspace_id = n.workspace_id WHERE n.id = NEW.notice_id AND m.state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT n.workspace_id, 'notice', n.id, '' FROM notices n JOIN moves m ON m.workspace_id = n.workspace_id WHERE n.id = NEW.notice_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `emails_move_update` AFTER UPDATE ON `emails`
WHEN EXISTS (SELECT 1 FROM moves)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM notices n JOIN moves m ON m.workspace_id = n.workspace_id WHERE n.id = NEW.notice_id AND m.state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, id, event_id) SELECT n.workspace_id, 'notice', n.id, '' FROM notices n JOIN moves m ON m.workspace_id = n.workspace_id WHERE n.id = NEW.notice_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `workspaces_move_update` AFTER UPDATE OF name, admin_emails, access_granted, webhooks_max ON `workspaces`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = NEW.id AND state IN ('closed', 'arrived', 'gone', 'left'))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving');
END;

PRAGMA defer_foreign_keys = ON;--> statement-breakpoint
CREATE TABLE `__new_leads` (
	`id` text PRIMARY KEY NOT NULL,
	`workspace_id` text NOT NULL,
	`reference` text NOT NULL,
	`source` text NOT NULL,
	`agent_id` text NOT NULL,
	`sealed` blob NOT NULL,
	`created_at` integer NOT NULL,
	`event_id` text NOT NULL,
	FOREIGN KEY (`workspace_id`) REFERENCES `workspaces`(`id`) ON UPDATE no action ON DELETE no action
) WITHOUT ROWID;
--> statement-breakpoint
INSERT INTO `__new_leads`("id", "workspace_id", "reference", "source", "agent_id", "sealed", "created_at", "event_id") SELECT "id", "workspace_id", "reference", "source", "agent_id", "sealed", "created_at", "event_id" FROM `leads`;--> statement-breakpoint
DROP TABLE `leads`;--> statement-breakpoint
ALTER TABLE `__new_leads` RENAME TO `leads`;--> statement-breakpoint
CREATE INDEX `leads_newest` ON `leads` (`workspace_id`,`created_at`,`id`);--> statement-breakpoint
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

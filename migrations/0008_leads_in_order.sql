-- Made by drizzle-kit, but for WITHOUT ROWID, the triggers, and the order: runs refer to leads, and only a
-- lead that is inserted again makes good for one that DROP TABLE has deleted.
PRAGMA defer_foreign_keys=ON;--> statement-breakpoint
CREATE TABLE `__old_leads` AS SELECT * FROM `leads`;--> statement-breakpoint
DROP TABLE `leads`;--> statement-breakpoint
CREATE TABLE `leads` (
	`id` text NOT NULL,
	`workspace_id` text NOT NULL,
	`reference` text NOT NULL,
	`source` text NOT NULL,
	`agent_id` text NOT NULL,
	`sealed` blob NOT NULL,
	`created_at` integer NOT NULL,
	`event_id` text NOT NULL,
	PRIMARY KEY(`workspace_id`, `created_at`, `id`),
	FOREIGN KEY (`workspace_id`) REFERENCES `workspaces`(`id`) ON UPDATE no action ON DELETE no action
) WITHOUT ROWID;
--> statement-breakpoint
CREATE UNIQUE INDEX `leads_by_id` ON `leads` (`id`);--> statement-breakpoint
INSERT INTO `leads` SELECT * FROM `__old_leads`;--> statement-breakpoint
DROP TABLE `__old_leads`;--> statement-breakpoint
CREATE TRIGGER `leads_move_insert` AFTER INSERT ON `leads`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IN ('closed', 'arrived') OR w.database IS NOT NULL AND NOT w.erasing AND m.state IS NOT 'arriving');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'lead', json_array(NEW.id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `leads_move_update` AFTER UPDATE ON `leads`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND (m.state IN ('closed', 'arrived') OR w.database IS NOT NULL AND NOT w.erasing AND m.state IS NOT 'arriving');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'lead', json_array(NEW.id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `leads_move_delete` AFTER DELETE ON `leads`
WHEN EXISTS (SELECT 1 FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND (m.state IS NOT NULL OR w.database IS NOT NULL))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND m.state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, key) SELECT w.id, 'lead', json_array(OLD.id) FROM workspaces w LEFT JOIN moves m ON m.workspace_id = w.id WHERE w.id = OLD.workspace_id AND m.state IN ('copying', 'draining');
END;

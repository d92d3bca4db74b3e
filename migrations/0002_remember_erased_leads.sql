-- Made by drizzle-kit, but for WITHOUT ROWID and the triggers, which are made by src/workspaces/moving/triggers.ts.
CREATE TABLE `erased_leads` (
	`workspace_id` text NOT NULL,
	`id` text NOT NULL,
	`erased_at` integer NOT NULL,
	PRIMARY KEY(`workspace_id`, `id`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `erased_leads_oldest` ON `erased_leads` (`erased_at`);
--> statement-breakpoint
CREATE TRIGGER `erased_leads_move_insert` AFTER INSERT ON `erased_leads`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'erased_lead', json_array(NEW.workspace_id, NEW.id) FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `erased_leads_move_update` AFTER UPDATE ON `erased_leads`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = NEW.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('closed', 'arrived', 'gone', 'left');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'erased_lead', json_array(NEW.workspace_id, NEW.id) FROM moves m WHERE m.workspace_id = NEW.workspace_id AND m.state IN ('copying', 'draining');
END;
--> statement-breakpoint
CREATE TRIGGER `erased_leads_move_delete` AFTER DELETE ON `erased_leads`
WHEN EXISTS (SELECT 1 FROM moves m WHERE m.workspace_id = OLD.workspace_id)
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving') FROM moves m WHERE m.workspace_id = OLD.workspace_id AND m.state IN ('closed', 'arrived');
	INSERT INTO changes (workspace_id, kind, key) SELECT m.workspace_id, 'erased_lead', json_array(OLD.workspace_id, OLD.id) FROM moves m WHERE m.workspace_id = OLD.workspace_id AND m.state IN ('copying', 'draining');
END;

ALTER TABLE `leads` ADD `sealed` blob;--> statement-breakpoint
ALTER TABLE `workspaces` ADD `data_key` text;--> statement-breakpoint
DROP TRIGGER `workspaces_move_update`;
--> statement-breakpoint
CREATE TRIGGER `workspaces_move_update` AFTER UPDATE OF name, admin_emails, access_granted, data_key, webhooks_max ON `workspaces`
WHEN EXISTS (SELECT 1 FROM moves WHERE workspace_id = NEW.id AND state IN ('closed', 'arrived', 'gone', 'left'))
BEGIN
	SELECT RAISE(ABORT, 'workspace_moving');
END;

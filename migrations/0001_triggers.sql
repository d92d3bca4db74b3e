-- Made by src/moving/triggers.ts.
CREATE TRIGGER `subscriptions_insert_locked` BEFORE INSERT ON `subscriptions`
WHEN (SELECT write_lock FROM workspaces WHERE id = NEW.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `subscriptions_update_locked` BEFORE UPDATE ON `subscriptions`
WHEN (SELECT write_lock FROM workspaces WHERE id = NEW.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `subscriptions_delete_locked` BEFORE DELETE ON `subscriptions`
WHEN (SELECT write_lock FROM workspaces WHERE id = OLD.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `automations_insert_locked` BEFORE INSERT ON `automations`
WHEN (SELECT write_lock FROM workspaces WHERE id = NEW.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `automations_update_locked` BEFORE UPDATE ON `automations`
WHEN (SELECT write_lock FROM workspaces WHERE id = NEW.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `automations_delete_locked` BEFORE DELETE ON `automations`
WHEN (SELECT write_lock FROM workspaces WHERE id = OLD.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `leads_insert_locked` BEFORE INSERT ON `leads`
WHEN (SELECT write_lock FROM workspaces WHERE id = NEW.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `leads_never_change` BEFORE UPDATE ON `leads`
BEGIN
	SELECT RAISE(ABORT, 'a lead never changes');
END;
--> statement-breakpoint
CREATE TRIGGER `leads_delete_locked` BEFORE DELETE ON `leads`
WHEN (SELECT write_lock FROM workspaces WHERE id = OLD.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `erased_leads_insert_locked` BEFORE INSERT ON `erased_leads`
WHEN (SELECT write_lock FROM workspaces WHERE id = NEW.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `erased_leads_update_locked` BEFORE UPDATE ON `erased_leads`
WHEN (SELECT write_lock FROM workspaces WHERE id = NEW.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `erased_leads_delete_locked` BEFORE DELETE ON `erased_leads`
WHEN (SELECT write_lock FROM workspaces WHERE id = OLD.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `runs_insert_locked` BEFORE INSERT ON `runs`
WHEN (SELECT write_lock FROM workspaces WHERE id = NEW.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `runs_update_locked` BEFORE UPDATE ON `runs`
WHEN (SELECT write_lock FROM workspaces WHERE id = NEW.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `runs_delete_locked` BEFORE DELETE ON `runs`
WHEN (SELECT write_lock FROM workspaces WHERE id = OLD.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `events_insert_locked` BEFORE INSERT ON `events`
WHEN (SELECT write_lock FROM workspaces WHERE id = NEW.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `events_update_locked` BEFORE UPDATE ON `events`
WHEN (SELECT write_lock FROM workspaces WHERE id = NEW.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `events_delete_locked` BEFORE DELETE ON `events`
WHEN (SELECT write_lock FROM workspaces WHERE id = OLD.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `deliveries_insert_locked` BEFORE INSERT ON `deliveries`
WHEN (SELECT write_lock FROM workspaces WHERE id = NEW.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `deliveries_update_locked` BEFORE UPDATE ON `deliveries`
WHEN (SELECT write_lock FROM workspaces WHERE id = NEW.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `deliveries_delete_locked` BEFORE DELETE ON `deliveries`
WHEN (SELECT write_lock FROM workspaces WHERE id = OLD.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `replays_insert_locked` BEFORE INSERT ON `replays`
WHEN (SELECT write_lock FROM workspaces WHERE id = NEW.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `replays_update_locked` BEFORE UPDATE ON `replays`
WHEN (SELECT write_lock FROM workspaces WHERE id = NEW.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `replays_delete_locked` BEFORE DELETE ON `replays`
WHEN (SELECT write_lock FROM workspaces WHERE id = OLD.workspace_id) = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;
--> statement-breakpoint
CREATE TRIGGER `workspaces_update_locked` BEFORE UPDATE OF id, name, admin_emails, access_granted, sealed_data_key, test_events, test_events_since, redelivered, redelivered_since, sessions_not_before, webhooks_max, created_at ON `workspaces`
WHEN OLD.write_lock = 'locked'
BEGIN
	SELECT RAISE(ABORT, 'moving: try again');
END;

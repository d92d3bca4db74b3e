-- Changes nothing: its name keeps versions from before 0009 from being deployed. They would post the empty
-- column `body` of an event whose body is stored apart, and could not decrypt such leads.
SELECT 1;

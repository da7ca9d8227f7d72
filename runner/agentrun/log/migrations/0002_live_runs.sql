-- The runs that have not ended.
-- Compatible: older builds need not know this migration.
--
-- The operator lists them once a minute, of a table nearly all of whose rows have ended.
-- A run enters the index when it is made and leaves it when it ends. `ended` is the one
-- column here that changes, and only then, so that claims and levels stay HOT updates.

CREATE INDEX run_live ON run (run_id) WHERE NOT ended;

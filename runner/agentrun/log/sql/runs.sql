-- Runs, their levels, and the projection that lists show.

-- name: create_run
INSERT INTO run (run_id, owner, name, definition, digest, generation, suspend, shutdown, budget)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (run_id) DO NOTHING
RETURNING true

-- name: get_run
SELECT run.run_id, run.owner, run.name, run.definition, run.digest,
       run.generation, run.suspend, run.shutdown, run.budget,
       run.epoch, run.attempt, run.ended, run.created_at, run.ended_at,
       newest.attempt AS newest_attempt, newest.process, newest.claimed, newest.outcome, newest.reason,
       newest.started_at AS attempt_started_at, newest.ended_at AS attempt_ended_at,
       greatest(extract(epoch FROM now() - newest.confirmed_at), 0)::float8 AS confirmed_age_seconds,
       coalesce(run_summary.summary, '') AS summary, now() AS read_at,
       (SELECT count(*) FROM run_inbox WHERE run_inbox.run_id = run.run_id) AS inbox
FROM run
LEFT JOIN LATERAL (
    SELECT * FROM run_attempt WHERE run_attempt.run_id = run.run_id ORDER BY run_attempt.attempt DESC LIMIT 1
) AS newest ON true
LEFT JOIN run_summary ON run_summary.run_id = run.run_id
WHERE run.run_id = $1

-- name: list_runs
-- The newest runs are picked before anything is joined to them.
WITH picked AS (
    SELECT * FROM run
    WHERE starts_with(run.owner, $1)
      AND ($3::timestamptz IS NULL OR (created_at, run_id) < ($3::timestamptz, $4::uuid))
    ORDER BY created_at DESC, run_id DESC
    LIMIT $2
)
SELECT run.run_id, run.owner, run.name, run.definition, run.digest,
       run.generation, run.suspend, run.shutdown, run.budget,
       run.epoch, run.attempt, run.ended, run.created_at, run.ended_at,
       newest.attempt AS newest_attempt, newest.process, newest.claimed, newest.outcome, newest.reason,
       newest.started_at AS attempt_started_at, newest.ended_at AS attempt_ended_at,
       greatest(extract(epoch FROM now() - newest.confirmed_at), 0)::float8 AS confirmed_age_seconds,
       coalesce(run_summary.summary, '') AS summary, now() AS read_at,
       (SELECT count(*) FROM run_inbox WHERE run_inbox.run_id = run.run_id) AS inbox
FROM picked AS run
LEFT JOIN LATERAL (
    SELECT * FROM run_attempt WHERE run_attempt.run_id = run.run_id ORDER BY run_attempt.attempt DESC LIMIT 1
) AS newest ON true
LEFT JOIN run_summary ON run_summary.run_id = run.run_id
ORDER BY run.created_at DESC, run.run_id DESC

-- name: resolve
UPDATE run SET resolved = coalesce(resolved, $2) WHERE run_id = $1
RETURNING resolved

-- name: live_runs
SELECT run.run_id, run.owner, run.attempt, run.ended, run.generation, run.suspend,
       coalesce(newest.claimed, false) AS claimed, newest.outcome,
       coalesce(run_summary.head, 0) AS summary_head,
       (SELECT count(*) FROM run_inbox WHERE run_inbox.run_id = run.run_id) AS inbox
FROM run
LEFT JOIN run_attempt AS newest ON newest.run_id = run.run_id AND newest.attempt = run.attempt
LEFT JOIN run_summary ON run_summary.run_id = run.run_id
WHERE starts_with(run.owner, $1) AND NOT run.ended

-- name: standings
SELECT run.run_id, run.owner, run.attempt, run.ended, run.generation, run.suspend,
       coalesce(newest.claimed, false) AS claimed, newest.outcome,
       coalesce(run_summary.head, 0) AS summary_head,
       (SELECT count(*) FROM run_inbox WHERE run_inbox.run_id = run.run_id) AS inbox
FROM run
LEFT JOIN run_attempt AS newest ON newest.run_id = run.run_id AND newest.attempt = run.attempt
LEFT JOIN run_summary ON run_summary.run_id = run.run_id
WHERE run.run_id = ANY($1::uuid[])

-- name: adopt
UPDATE run SET owner = $3, generation = $4, suspend = $5, shutdown = $6, budget = $7
WHERE run_id = $1 AND owner = $2
RETURNING true

-- name: set_levels
UPDATE run SET generation = $2, suspend = $3, shutdown = $4, budget = $5
WHERE run_id = $1 AND generation < $2
RETURNING true

-- name: put_summary
INSERT INTO run_summary (run_id, epoch, head, summary)
SELECT run_id, $2, $3, $4 FROM run WHERE run_id = $1
ON CONFLICT (run_id) DO UPDATE
SET epoch = excluded.epoch, head = excluded.head, summary = excluded.summary
WHERE (run_summary.epoch, run_summary.head) <= (excluded.epoch, excluded.head)

-- Attempts, the claim, and looking. Each locks the row of run first, then run_attempt.

-- name: allocate_attempt
-- A rival that waited for the row sees the raised number, and gets no row.
WITH raised AS (
    UPDATE run SET attempt = attempt + 1, claimer = NULL
    WHERE run_id = $1 AND attempt = $2 AND NOT ended
    RETURNING run_id, attempt
), closed AS (
    UPDATE run_attempt SET outcome = $4, ended_at = now()
    FROM raised
    WHERE run_attempt.run_id = raised.run_id
      AND run_attempt.attempt < raised.attempt
      AND run_attempt.outcome IS NULL
), made AS (
    INSERT INTO run_attempt (run_id, attempt, process)
    SELECT run_id, attempt, $3 FROM raised
)
SELECT attempt FROM raised

-- name: attempts
SELECT attempt AS newest_attempt, process, claimed, outcome, reason,
       started_at AS attempt_started_at, ended_at AS attempt_ended_at,
       greatest(extract(epoch FROM now() - confirmed_at), 0)::float8 AS confirmed_age_seconds
FROM run_attempt
WHERE run_id = $1
ORDER BY attempt

-- name: close_attempt
UPDATE run_attempt SET outcome = $3, reason = $4, ended_at = now()
WHERE run_id = $1 AND attempt = $2 AND outcome IS NULL
RETURNING true

-- name: claim
-- `claimer` is emptied with each new attempt, so that a repeated claim gives the same
-- epoch within its attempt only. (After a reopen no process has the number: no row.)
WITH claimed AS (
    UPDATE run
    SET epoch = CASE WHEN claimer = $3 THEN epoch ELSE epoch + 1 END, claimer = $3
    WHERE run_id = $1 AND attempt = $2 AND NOT ended
      AND EXISTS (SELECT FROM run_attempt WHERE run_attempt.run_id = $1 AND run_attempt.attempt = $2)
    RETURNING run_id, attempt, epoch
), marked AS (
    UPDATE run_attempt SET claimed = true, confirmed_at = now()
    FROM claimed
    WHERE run_attempt.run_id = claimed.run_id AND run_attempt.attempt = claimed.attempt
)
SELECT epoch FROM claimed

-- name: look
-- The update is also the proof that this server can write: on a standby or a read-only
-- primary it is refused even where it would change no row.
WITH confirmed AS (
    UPDATE run_attempt SET confirmed_at = now()
    WHERE run_id = $1 AND attempt = $2 AND outcome IS NULL
)
SELECT epoch, attempt, ended, generation, suspend, shutdown, budget,
       coalesce((SELECT max(seq) FROM run_log WHERE run_log.run_id = $1), 0) AS head,
       (SELECT count(*) FROM run_inbox WHERE run_inbox.run_id = $1) AS inbox,
       pg_postmaster_start_time() AS server, coalesce(claimer, '') AS claimer
FROM run
WHERE run_id = $1

-- name: reopen
-- A row that turns up in the place of the record breaks the whole statement.
WITH reopened AS (
    UPDATE run SET ended = false, ended_at = NULL, epoch = epoch + 1, attempt = attempt + 1, claimer = NULL
    WHERE run_id = $1 AND ended
      AND (SELECT coalesce(max(seq), 0) + 1 FROM run_log WHERE run_log.run_id = $1) = $2
    RETURNING run_id
)
INSERT INTO run_log (run_id, seq, record)
SELECT run_id, $2, $3 FROM reopened
RETURNING true

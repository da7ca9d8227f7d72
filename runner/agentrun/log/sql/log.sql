-- The log. Every insert requires the server that its writer knows: behind a pooler a
-- failover goes unseen, and rows that it lost would leave a hole.

-- name: insert_row
INSERT INTO run_log (run_id, seq, record)
SELECT $1, $2, $3 WHERE pg_postmaster_start_time() = $4
ON CONFLICT (run_id, seq) DO NOTHING
RETURNING seq

-- name: insert_final
-- The run's row is locked first, in the order that reopen takes.
WITH locked AS (
    SELECT run_id FROM run WHERE run_id = $1 FOR UPDATE
), inserted AS (
    INSERT INTO run_log (run_id, seq, record)
    SELECT run_id, $2, $3 FROM locked WHERE pg_postmaster_start_time() = $4
    ON CONFLICT (run_id, seq) DO NOTHING
    RETURNING run_id, seq
), ended AS (
    UPDATE run SET ended = true, ended_at = now()
    FROM inserted
    WHERE run.run_id = inserted.run_id
)
SELECT seq FROM inserted

-- name: insert_pack
-- Without ON CONFLICT: one taken place breaks the statement, and no row goes in.
INSERT INTO run_log (run_id, seq, record)
SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bytea[])
WHERE pg_postmaster_start_time() = $4

-- name: insert_next
INSERT INTO run_log (run_id, seq, record)
SELECT $1, $2, $3
WHERE pg_postmaster_start_time() = $4
  AND (SELECT coalesce(max(seq), 0) + 1 FROM run_log WHERE run_id = $1) = $2
ON CONFLICT (run_id, seq) DO NOTHING
RETURNING seq

-- name: read_rows
SELECT seq, record FROM run_log
WHERE run_id = $1 AND seq > $2
ORDER BY seq
LIMIT nullif($3::bigint, 0)

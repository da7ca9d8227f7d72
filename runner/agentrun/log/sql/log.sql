-- The log. Every insert requires the server that its writer knows: behind a pooler a
-- failover goes unseen, and rows that it lost would leave a hole.

-- name: insert_row
-- No row comes back where the place is taken, or where the server is another one.
INSERT INTO run_log (run_id, seq, record)
SELECT $1, $2, $3 WHERE pg_postmaster_start_time() = $4
ON CONFLICT (run_id, seq) DO NOTHING
RETURNING seq

-- name: insert_final
-- The run's row is locked first, in the order that reopen takes. Here, too, what forbids
-- the row breaks the statement, the end of the run included.
WITH ended AS (
    UPDATE run SET ended = true, ended_at = now() WHERE run_id = $1
    RETURNING run_id
)
INSERT INTO run_log (run_id, seq, record)
SELECT run_id, CASE WHEN pg_postmaster_start_time() = $4 THEN $2::bigint END, $3 FROM ended
RETURNING seq

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

-- name: read_new
SELECT wanted.run_id, found.seq, found.record
FROM unnest($1::uuid[], $2::bigint[]) AS wanted(run_id, head)
CROSS JOIN LATERAL (
    SELECT seq, record FROM run_log
    WHERE run_log.run_id = wanted.run_id AND run_log.seq > wanted.head
    ORDER BY seq
    LIMIT $3::bigint
) AS found
ORDER BY wanted.run_id, found.seq

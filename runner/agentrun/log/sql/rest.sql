-- Inbox, hints, blobs, and what a link asks when it is opened.

-- name: server_started
SELECT pg_postmaster_start_time()

-- name: post
INSERT INTO run_inbox (run_id, id, kind, payload)
SELECT run_id, $2, $3, $4 FROM run WHERE run_id = $1
ON CONFLICT (run_id, id) DO NOTHING
RETURNING true

-- name: inbox
SELECT id, kind, payload, created_at FROM run_inbox WHERE run_id = $1 ORDER BY ordinal

-- name: notify
SELECT count(pg_notify('agentrun', id::text)) FROM unnest($1::uuid[]) AS id

-- name: put_blob
INSERT INTO run_blob (run_id, sha256, data) VALUES ($1, $2, $3)
ON CONFLICT (run_id, sha256) DO NOTHING

-- name: get_blob
SELECT data FROM run_blob WHERE run_id = $1 AND sha256 = $2

-- name: ping
SELECT 1

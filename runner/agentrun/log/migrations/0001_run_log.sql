-- The run log: what agentrun keeps in Postgres.
--
-- A run is a graph of steps that is discovered as it runs. It lives in a chain of
-- processes, each of which may vanish at any moment; what lasts is here.
--
-- run          One row a run: whose it is, its definition (once, never changed), who
--              may write to its log, and what its owner wants of it now.
--                resolved is the definition with the texts that it names by reference, as
--                         the first claimer read them; later edits change nothing.
--                epoch    is raised by every claim. A process that reads a greater
--                         epoch than its own has lost the run.
--                attempt  is the newest number given out in run_attempt. Only the
--                         process that carries it can claim.
--                claimer  the process that the epoch belongs to, so that a claim whose
--                         reply was lost can be asked again and gives the same epoch.
--                ended    is set by the statement that inserts the final record, never
--                         before it and never apart from it.
--                generation, suspend, shutdown, budget
--                         levels: what is wanted now, not what is to be done. A write
--                         with a generation that is not greater changes nothing.
--
-- run_log      The truth: one row a finished step, numbered 1, 2, 3 … without holes.
--              Rows are inserted and never updated. The primary key is the fence: of
--              two processes that think they own a run, only one gets a place. It has
--              no foreign key to run: that would lock and read the run's row at every
--              step, for a mistake that the claim already rules out.
--
-- run_attempt  Who tried to run it, when they last confirmed themselves (by this
--              server's clock), and how it ended for them; the outcome is written once.
--
-- run_inbox    Approvals and messages from outside. Never updated: the record that uses
--              one names its id, so what is unused is the inbox minus the log.
--
-- run_summary  A projection of the log for status and lists. Anything here can be lost.
--
-- run_blob     Outputs too large for a record, under the run and the hash of the bytes.
--              Stored before the record that points at them.
--
-- NOTIFY on the channel "agentrun" carries a run's id and is only a hint; no statement
-- that writes the log sends it.
--
-- JSON is kept as text: the bytes that were written are the bytes that are read.
-- Names are without a schema, so that the search_path of the connection decides.

CREATE TABLE run (
    run_id     uuid        PRIMARY KEY,
    owner      text        NOT NULL,
    name       text        NOT NULL,
    definition bytea       NOT NULL,
    digest     text        NOT NULL,
    resolved   bytea,
    generation bigint      NOT NULL DEFAULT 0,
    suspend    boolean     NOT NULL DEFAULT false,
    shutdown   text        NOT NULL DEFAULT '',
    budget     text        NOT NULL DEFAULT '',
    epoch      bigint      NOT NULL DEFAULT 0,
    attempt    integer     NOT NULL DEFAULT 0,
    claimer    bytea,
    ended      boolean     NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    ended_at   timestamptz
) WITH (fillfactor = 70);
-- Room on the page and no index on what changes: claims and levels are HOT updates.

CREATE INDEX run_newest ON run (created_at DESC, run_id DESC);

CREATE TABLE run_log (
    run_id uuid   NOT NULL,
    seq    bigint NOT NULL,
    record bytea  NOT NULL,
    PRIMARY KEY (run_id, seq)
);
-- A record is at most some 8 KiB, larger outputs being blobs. MAIN keeps it in its row
-- as long as it fits a page: moved out (the default, from 2 KB), a step would cost
-- three inserts in place of one, and a replay a look-up for each record.
ALTER TABLE run_log ALTER COLUMN record SET STORAGE MAIN;

CREATE TABLE run_attempt (
    run_id       uuid        NOT NULL,
    attempt      integer     NOT NULL,
    process      text        NOT NULL,
    claimed      boolean     NOT NULL DEFAULT false,
    confirmed_at timestamptz NOT NULL DEFAULT now(),
    outcome      text,
    reason       text        NOT NULL DEFAULT '',
    started_at   timestamptz NOT NULL DEFAULT now(),
    ended_at     timestamptz,
    PRIMARY KEY (run_id, attempt)
) WITH (fillfactor = 70);

CREATE TABLE run_inbox (
    run_id     uuid        NOT NULL,
    id         text        NOT NULL,
    kind       text        NOT NULL,
    payload    bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    ordinal    bigint      NOT NULL GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (run_id, id)
);

CREATE TABLE run_summary (
    run_id  uuid   PRIMARY KEY,
    epoch   bigint NOT NULL,
    head    bigint NOT NULL,
    summary text   NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE run_blob (
    run_id     uuid        NOT NULL,
    sha256     bytea       NOT NULL,
    data       bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (run_id, sha256)
);

-- Records of 2 to 8 KB: lz4 packs them in no time worth speaking of. Where a server was
-- built without it they stay as they are, for the default compression would cost more than
-- all else that an append does outside its flush (measured: 60 us for 6 KB).
DO $$
BEGIN
    ALTER TABLE run_log ALTER COLUMN record SET COMPRESSION lz4;
    ALTER TABLE run_blob ALTER COLUMN data SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
    ALTER TABLE run_log SET (toast_tuple_target = 8160);
END
$$;

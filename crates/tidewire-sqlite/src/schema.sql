-- The tables of campaigns, version 1. docs/reference/campaign-tables.md says what is in them.
-- Times are microseconds since 1970-01-01 00:00 UTC, booleans are 0 and 1, digests 32 hexadecimal digits.

CREATE TABLE tidewire_meta (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE tidewire_campaigns (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL CHECK (state IN ('draft', 'running', 'paused', 'cancelled', 'failed', 'done')),
    reason TEXT NOT NULL,
    runs INTEGER NOT NULL CHECK (runs >= 0),
    done INTEGER NOT NULL CHECK (done >= 0),
    failed INTEGER NOT NULL CHECK (failed >= 0),
    quarantined INTEGER NOT NULL CHECK (quarantined >= 0),
    result_rows INTEGER NOT NULL CHECK (result_rows >= 0),
    digest TEXT NOT NULL,
    seed TEXT NOT NULL,
    sets INTEGER NOT NULL CHECK (sets >= 1),
    attempts INTEGER NOT NULL,
    timeout_us INTEGER,
    failed_max INTEGER,
    lease_us INTEGER NOT NULL,
    range_us INTEGER NOT NULL,
    until_column TEXT,
    until_half_width REAL,
    until_confidence REAL,
    results TEXT,
    columns TEXT,
    many INTEGER NOT NULL,
    created INTEGER NOT NULL,
    ledger TEXT NOT NULL
);

CREATE TABLE tidewire_functions (
    campaign INTEGER PRIMARY KEY REFERENCES tidewire_campaigns (id),
    function TEXT NOT NULL,
    pickled BLOB,
    code TEXT NOT NULL
);

CREATE TABLE tidewire_parameters (
    campaign INTEGER NOT NULL REFERENCES tidewire_campaigns (id),
    param_set INTEGER NOT NULL,
    parameters TEXT NOT NULL,
    PRIMARY KEY (campaign, param_set)
) WITHOUT ROWID;

CREATE TABLE tidewire_events (
    campaign INTEGER NOT NULL REFERENCES tidewire_campaigns (id),
    number INTEGER NOT NULL,
    happened INTEGER NOT NULL,
    state_before TEXT NOT NULL,
    state_after TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (campaign, number)
) WITHOUT ROWID;

CREATE TABLE tidewire_workers (
    campaign INTEGER NOT NULL REFERENCES tidewire_campaigns (id),
    id INTEGER NOT NULL,
    name TEXT NOT NULL,
    host TEXT NOT NULL,
    process INTEGER NOT NULL,
    code TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('working', 'left', 'lost')),
    joined INTEGER NOT NULL,
    seen INTEGER NOT NULL,
    runs INTEGER NOT NULL,
    stage_lease_us INTEGER NOT NULL,
    stage_warm_up_us INTEGER NOT NULL,
    stage_run_us INTEGER NOT NULL,
    stage_encode_us INTEGER NOT NULL,
    stage_persist_us INTEGER NOT NULL,
    stage_wait_us INTEGER NOT NULL,
    stage_idle_us INTEGER NOT NULL,
    PRIMARY KEY (campaign, id)
) WITHOUT ROWID;

CREATE TABLE tidewire_failures (
    campaign INTEGER NOT NULL REFERENCES tidewire_campaigns (id),
    run INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('error', 'timeout', 'quarantined')),
    error TEXT NOT NULL,
    message TEXT NOT NULL,
    traceback TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    worker INTEGER NOT NULL,
    happened INTEGER NOT NULL,
    PRIMARY KEY (campaign, run)
) WITHOUT ROWID;

CREATE TABLE tidewire_moments (
    campaign INTEGER PRIMARY KEY REFERENCES tidewire_campaigns (id),
    moments BLOB NOT NULL
);

INSERT INTO tidewire_meta (key, value) VALUES ('application', 'tidewire');

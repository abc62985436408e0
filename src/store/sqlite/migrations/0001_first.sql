-- Calls that run, wait or changed. They are found by id and identity through an index in memory, so that one more call touches the end of two tables
-- and no random page of an index.
CREATE TABLE calls (
    n INTEGER PRIMARY KEY,
    organisation TEXT NOT NULL,
    id TEXT NOT NULL,
    phase TEXT NOT NULL,
    bound INTEGER NOT NULL,
    identity TEXT,
    alias TEXT,
    tool TEXT NOT NULL,
    session_id TEXT,
    run_id TEXT,
    created_at_ms INTEGER NOT NULL,
    finished_at_ms INTEGER,
    instance TEXT,
    rest TEXT NOT NULL
) STRICT;
CREATE INDEX calls_open ON calls (phase) WHERE phase IN ('running', 'waiting_approval');
CREATE INDEX calls_of_session ON calls (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX calls_of_run ON calls (run_id) WHERE run_id IS NOT NULL;

-- What is large about a call, apart from what is looked through.
CREATE TABLE bodies (
    n INTEGER PRIMARY KEY,
    arguments BLOB,
    outcome BLOB NOT NULL
) STRICT;

-- Calls that were finished when they were first kept, many in a row, never changed; those before `first` are gone.
-- `names` says what they are found by, `marks` whose they are; both stand before `records`, of
-- which there are so many `bytes`, and are read without them.
CREATE TABLE chunks (
    n INTEGER PRIMARY KEY,
    first INTEGER NOT NULL,
    oldest_ms INTEGER NOT NULL,
    newest_ms INTEGER NOT NULL,
    marks BLOB NOT NULL,
    names BLOB NOT NULL,
    bytes INTEGER NOT NULL,
    records BLOB NOT NULL
) STRICT;
-- `name_key`: names are hashes under it, so that whoever chooses ids cannot make two of them meet.
CREATE TABLE marks (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    unbound_before_ms INTEGER NOT NULL,
    name_key BLOB NOT NULL
) STRICT;
INSERT INTO marks VALUES (1, -9223372036854775808, randomblob(16));

CREATE TABLE approvals (
    n INTEGER PRIMARY KEY,
    organisation TEXT NOT NULL,
    id TEXT NOT NULL,
    call_n INTEGER NOT NULL,
    call_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    tool TEXT NOT NULL,
    session_id TEXT,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    decided_at_ms INTEGER,
    decided_by TEXT,
    reason TEXT,
    used_at_ms INTEGER,
    rest TEXT NOT NULL,
    UNIQUE (organisation, id)
) STRICT;
CREATE INDEX approvals_of_call ON approvals (call_n);
CREATE INDEX approvals_in_state ON approvals (status, created_at_ms);

CREATE TABLE notices (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    sink TEXT NOT NULL,
    event TEXT NOT NULL,
    message_id TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    due_at_ms INTEGER NOT NULL,
    tries INTEGER NOT NULL
) STRICT;

CREATE TABLE audit (
    n INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    organisation TEXT NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    subject TEXT,
    before TEXT,
    after TEXT,
    detail TEXT
) STRICT;
CREATE INDEX audit_of_organisation ON audit (organisation, at_ms);

CREATE TABLE policies (
    organisation TEXT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    body TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    PRIMARY KEY (organisation, id)
) STRICT, WITHOUT ROWID;
CREATE TABLE revision (one INTEGER PRIMARY KEY CHECK (one = 1), revision INTEGER NOT NULL) STRICT;
INSERT INTO revision VALUES (1, 0);

CREATE TABLE shadow_counts (
    organisation TEXT NOT NULL,
    policy TEXT NOT NULL,
    day INTEGER NOT NULL,
    tool TEXT NOT NULL,
    calls INTEGER NOT NULL,
    matched INTEGER NOT NULL,
    disagreed INTEGER NOT NULL,
    unasked INTEGER NOT NULL,
    approved INTEGER NOT NULL,
    rejected INTEGER NOT NULL,
    expired INTEGER NOT NULL,
    PRIMARY KEY (organisation, policy, day, tool)
) STRICT, WITHOUT ROWID;
CREATE TABLE shadow_samples (
    n INTEGER PRIMARY KEY,
    organisation TEXT NOT NULL,
    policy TEXT NOT NULL,
    day INTEGER NOT NULL,
    call_id TEXT NOT NULL,
    tool TEXT NOT NULL
) STRICT;
CREATE INDEX shadow_samples_of_day ON shadow_samples (organisation, policy, day);

CREATE TABLE calls (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organisation text NOT NULL,
    id text NOT NULL,
    phase text NOT NULL,
    bound boolean NOT NULL,
    identity text,
    alias text,
    tool text NOT NULL,
    session_id text,
    run_id text,
    created_at_ms bigint NOT NULL,
    finished_at_ms bigint,
    instance text,
    rest text NOT NULL,
    arguments bytea,
    outcome bytea NOT NULL,
    UNIQUE (organisation, id)
);
CREATE INDEX calls_open ON calls (phase) WHERE phase IN ('running', 'waiting_approval');
CREATE INDEX calls_of_session ON calls (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX calls_of_run ON calls (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX calls_made ON calls (organisation, created_at_ms);
CREATE INDEX calls_finished ON calls (finished_at_ms) WHERE finished_at_ms IS NOT NULL;
CREATE INDEX calls_bound ON calls (finished_at_ms) WHERE bound AND finished_at_ms IS NOT NULL;

-- Who holds an identity, as its own or as its alias.
CREATE TABLE bindings (
    organisation text NOT NULL,
    identity text NOT NULL,
    call_n bigint NOT NULL REFERENCES calls (n) ON DELETE CASCADE,
    PRIMARY KEY (organisation, identity)
);
CREATE INDEX bindings_of_call ON bindings (call_n);

CREATE TABLE approvals (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organisation text NOT NULL,
    id text NOT NULL,
    call_n bigint NOT NULL REFERENCES calls (n) ON DELETE CASCADE,
    call_id text NOT NULL,
    kind text NOT NULL,
    status text NOT NULL,
    tool text NOT NULL,
    session_id text,
    created_at_ms bigint NOT NULL,
    expires_at_ms bigint NOT NULL,
    decided_at_ms bigint,
    decided_by text,
    reason text,
    used_at_ms bigint,
    rest text NOT NULL,
    UNIQUE (organisation, id)
);
CREATE INDEX approvals_of_call ON approvals (call_n);
CREATE INDEX approvals_in_state ON approvals (status, created_at_ms);

CREATE TABLE notices (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sink text NOT NULL,
    event text NOT NULL,
    message_id text NOT NULL,
    body text NOT NULL,
    created_at_ms bigint NOT NULL,
    due_at_ms bigint NOT NULL,
    tries integer NOT NULL
);

CREATE TABLE audit (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_ms bigint NOT NULL,
    organisation text NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    subject text,
    before text,
    after text,
    detail text
);
CREATE INDEX audit_of_organisation ON audit (organisation, at_ms);
CREATE INDEX audit_at ON audit (at_ms);

CREATE TABLE policies (
    organisation text NOT NULL,
    id text NOT NULL,
    version bigint NOT NULL,
    body text NOT NULL,
    created_at_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    PRIMARY KEY (organisation, id)
);
CREATE TABLE revision (one integer PRIMARY KEY CHECK (one = 1), revision bigint NOT NULL);
INSERT INTO revision VALUES (1, 0);

CREATE TABLE shadow_counts (
    organisation text NOT NULL,
    policy text NOT NULL,
    day bigint NOT NULL,
    tool text NOT NULL,
    calls bigint NOT NULL,
    matched bigint NOT NULL,
    disagreed bigint NOT NULL,
    unasked bigint NOT NULL,
    approved bigint NOT NULL,
    rejected bigint NOT NULL,
    expired bigint NOT NULL,
    PRIMARY KEY (organisation, policy, day, tool)
);
CREATE TABLE shadow_samples (
    n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    organisation text NOT NULL,
    policy text NOT NULL,
    day bigint NOT NULL,
    call_id text NOT NULL,
    tool text NOT NULL
);
CREATE INDEX shadow_samples_of_day ON shadow_samples (organisation, policy, day);

-- Which gateways live.
CREATE TABLE instances (instance text PRIMARY KEY, at_ms bigint NOT NULL);

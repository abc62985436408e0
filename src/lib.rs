#![doc = include_str!("README.md")]

/// Floor 0: words that everybody uses.
pub mod model {
    pub mod approval;
    pub mod build;
    pub mod call;
    pub mod canonical;
    pub mod id;
    pub mod json;
    pub mod json_string;
    pub mod json_text;
    pub mod json_tree;
    pub mod notice;
    pub mod number;
    pub mod outcome;
    pub mod outcome_text;
    pub mod secret;
    pub mod time;
    pub mod trace;
}

/// Floor 1: the rules, as functions of their arguments.
pub mod policy {
    pub mod address;
    pub mod agents;
    pub mod answer;
    pub mod approval;
    pub mod authentication;
    pub mod breaker;
    pub mod budget;
    pub mod condition;
    pub mod credentials;
    pub mod egress;
    pub mod egress_check;
    pub mod egress_code;
    pub mod egress_judge;
    pub mod egress_problem;
    pub mod endpoint;
    pub mod export;
    pub mod header;
    pub mod identity;
    pub mod issuer;
    pub mod jwk;
    pub mod mail;
    pub mod names;
    pub mod oauth2;
    pub mod peer_name;
    pub mod ports;
    pub mod profile_fault;
    pub mod quota;
    pub mod ranges;
    pub mod retry;
    pub mod rules;
    pub mod sample;
    pub mod sample_pattern;
    pub mod sampling;
    pub mod schema;
    pub mod schema_cost;
    pub mod schema_keywords;
    pub mod schema_numbers;
    pub mod schema_subset;
    pub mod schema_words;
    pub mod scheme;
    pub mod sign;
    pub mod sign_words;
    pub mod template;
    pub mod token;
    pub mod truncate;
    pub mod window;
    pub mod wire;
    pub mod wire_parts;
    pub mod wire_view;
}

/// Floor 2: text in, an immutable value out.
pub mod config {
    pub mod agents;
    pub mod auth;
    pub mod basic;
    pub mod caller;
    pub mod carry;
    pub mod change;
    pub mod client_identity;
    pub mod context;
    pub mod definition;
    pub mod diff;
    pub mod draft;
    pub mod egress;
    pub mod emit;
    pub mod file;
    pub mod finding;
    pub mod given;
    pub mod import;
    pub mod included;
    pub mod issuers;
    pub mod json;
    pub mod keeping;
    pub mod kept_policy;
    pub mod keys;
    pub mod leaf;
    pub mod limits;
    pub mod listeners;
    pub mod listening;
    pub mod local;
    pub mod names;
    pub mod notifications;
    pub mod organisations;
    pub mod parse;
    pub mod policies;
    pub mod profile;
    pub mod profiles;
    pub mod proxy;
    pub mod raw;
    pub mod raw_auth;
    pub mod raw_condition;
    pub mod raw_egress;
    pub mod raw_limits;
    pub mod raw_notify;
    pub mod raw_policy;
    pub mod raw_store;
    pub mod raw_tool;
    pub mod raw_tracing;
    pub mod read;
    pub mod redact;
    pub mod runtime;
    pub mod serving;
    pub mod signing;
    pub mod snapshot;
    pub mod storage;
    pub mod telling;
    pub mod tools;
    pub mod tracing;
    pub mod variables;
    pub mod yaml;
}

/// Floor 3: what touches the world.
pub mod net {
    pub mod certificate;
    pub mod client;
    pub mod connect;
    pub mod dns;
    pub mod epoch;
    pub mod fetch;
    pub mod header_case;
    pub mod key_sets;
    pub mod meter;
    pub mod otlp;
    pub mod own_server;
    pub mod pool;
    pub mod proxy;
    pub mod resolve;
    pub mod serving;
    pub mod shortage;
    pub mod smtp;
    pub mod tap;
    #[cfg(test)]
    pub mod tests;
    pub mod tls;
    pub mod webhook_out;
}
pub mod clock;
pub mod limits;
pub mod source;
pub mod store;
/// Floor 3: what operators watch.
pub mod telemetry {
    pub mod audit;
    pub mod config_metrics;
    mod dial;
    pub mod labels;
    pub mod line;
    pub mod log;
    pub mod maker;
    pub mod metrics;
    mod protobuf;
    pub mod readings;
    pub mod spans;
    pub mod tool_metrics;
    pub mod trace;
    mod vectors;
    pub mod waiting_metrics;
}

// Floor 4: something that can run a checked call.
pub mod exec;

// Floor 5: the order of things.
pub mod gateway;

// Floor 6: HTTP.
pub mod serve;

// Floor 7: wiring and the command line.
pub mod app;
pub mod cli;
pub mod reload;

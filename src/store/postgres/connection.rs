//! Connections to a PostgreSQL server: how they are made, bounded and given up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::{
    Client, GenericClient, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime, Transaction,
};
use rustls::ClientConfig;
use tokio_postgres::Config;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::config::snapshot::TlsSettings;
use crate::net::tls::{TlsError, client_tls};
use crate::store::{StoreError, Stored};

/// The tables, version by version: the first makes version 1.
const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_first.sql")];
/// The lock under which gateways that start at once make the tables one after the other: `srti`.
const MIGRATION_LOCK: i64 = 0x7372_7469;
/// Connections at most.
const CONNECTIONS: usize = 16;
/// How long one step of making a connection takes at most, and waiting for one that is in use.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the server works at one statement at most, in milliseconds.
const STATEMENT_MS: u32 = 5000;
/// How long the server keeps a transaction that nothing is asked of, in milliseconds: a gateway whose machine went away
/// must not hold names that others need.
const IDLE_MS: u32 = 20_000;
/// How long anybody waits for the server, all steps together.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the start waits for a server that is away.
const START: Duration = Duration::from_secs(10);
/// After a connection that failed the next one waits, this long at most: many gateways must not come at once.
const PAUSE_MS: u64 = 250;

/// Why the server cannot be the store. No text holds the password.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// The URL is not one.
    #[error("the store's url cannot be used: {0}")]
    Url(String),
    /// The TLS settings cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A later version of Sortie made the tables.
    #[error(
        "the database was set up by a later version of sortie (schema {found}, this one knows {known})"
    )]
    Newer {
        /// Its version.
        found: i64,
        /// The latest that is known here.
        known: i64,
    },
    /// It did not answer as it should, in ten seconds.
    #[error("the database cannot be used: {0}")]
    Away(String),
}

/// A value of a statement.
pub(super) type Value<'a> = &'a (dyn ToSql + Sync);

/// Connections that are kept.
pub(super) struct Connections {
    pool: Pool,
    /// Whether the last one could not be made.
    failed: AtomicBool,
}

impl Connections {
    /// Reaches the server and makes the tables what they are now.
    pub(super) async fn open(url: &str, tls: &TlsSettings) -> Result<Self, PostgresError> {
        let mut config: Config =
            url.parse().map_err(|error: tokio_postgres::Error| PostgresError::Url(told(&error)))?;
        let options = config.get_options().unwrap_or_default();
        let options = format!(
            "-c idle_in_transaction_session_timeout={IDLE_MS} -c tcp_keepalives_idle=30 \
             -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 {options} \
             -c statement_timeout={STATEMENT_MS} -c timezone=UTC"
        );
        config
            .options(options.trim())
            .application_name("sortie")
            .connect_timeout(CONNECT)
            .tcp_user_timeout(PATIENCE)
            .keepalives_idle(Duration::from_secs(30));
        let mut client = ClientConfig::clone(&client_tls(tls)?.config);
        client.alpn_protocols = vec![b"postgresql".to_vec()];
        let keeps = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config, MakeRustlsConnect::new(client), keeps);
        let pool = Pool::builder(manager)
            .max_size(CONNECTIONS)
            .wait_timeout(Some(CONNECT))
            .create_timeout(Some(CONNECT))
            .recycle_timeout(Some(CONNECT))
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|error| PostgresError::Away(error.to_string()))?;
        let connections = Self { pool, failed: AtomicBool::new(false) };
        let mut last = String::from("it did not answer");
        let start = async {
            loop {
                match connections.migrate().await {
                    Err(PostgresError::Away(text)) => last = text,
                    done => return done,
                }
                tokio::time::sleep(Duration::from_millis(PAUSE_MS)).await;
            }
        };
        match tokio::time::timeout(START, start).await {
            Ok(done) => done.map(|()| connections),
            Err(_) => Err(PostgresError::Away(last)),
        }
    }

    /// A connection.
    pub(super) async fn client(&self) -> Result<Client, StoreError> {
        if self.failed.load(Ordering::Relaxed) {
            let pause = rand::random_range(0..=PAUSE_MS);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        let client = self.pool.get().await;
        self.failed.store(client.is_err(), Ordering::Relaxed);
        client.map_err(|error| match error {
            deadpool_postgres::PoolError::Backend(error) => failed(error),
            error => StoreError::Unavailable(error.to_string()),
        })
    }

    async fn migrate(&self) -> Result<(), PostgresError> {
        let away = |error| PostgresError::Away(told(&error));
        let client = self.client().await;
        let mut client = client.map_err(|error| PostgresError::Away(error.to_string()))?;
        let step = client.transaction().await.map_err(away)?;
        step.execute("SELECT pg_advisory_xact_lock($1)", &[&MIGRATION_LOCK]).await.map_err(away)?;
        step.batch_execute("CREATE TABLE IF NOT EXISTS sortie_schema (version bigint NOT NULL)")
            .await
            .map_err(away)?;
        let query = "SELECT coalesce(max(version), 0) FROM sortie_schema";
        let found: i64 =
            step.query_one(query, &[]).await.and_then(|row| row.try_get(0)).map_err(away)?;
        let known = MIGRATIONS.len() as i64;
        if found > known {
            return Err(PostgresError::Newer { found, known });
        }
        for (version, text) in (1_i64..).zip(MIGRATIONS).filter(|(version, _)| *version > found) {
            step.batch_execute(text).await.map_err(away)?;
            let insert = "INSERT INTO sortie_schema (version) VALUES ($1)";
            step.execute(insert, &[&version]).await.map_err(away)?;
        }
        step.commit().await.map_err(away)
    }
}

/// What is done at the server, with an end to waiting for it.
pub(super) fn bounded<'a, T>(
    work: impl Future<Output = Result<T, StoreError>> + Send + 'a,
) -> Stored<'a, T>
where
    T: Send + 'a,
{
    Box::pin(async move {
        let late = |_| {
            let text = format!("the database did not answer within {} s", PATIENCE.as_secs());
            Err(StoreError::Unavailable(text))
        };
        tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(late)
    })
}

/// A transaction begins.
pub(super) async fn begin(client: &mut Client) -> Result<Transaction<'_>, StoreError> {
    client.transaction().await.map_err(failed)
}

/// A transaction is kept.
pub(super) async fn commit(transaction: Transaction<'_>) -> Result<(), StoreError> {
    transaction.commit().await.map_err(failed)
}

/// Rows of a statement that is prepared once for each connection.
pub(super) async fn rows(
    client: &impl GenericClient,
    query: &str,
    values: &[Value<'_>],
) -> Result<Vec<Row>, StoreError> {
    let statement = client.prepare_cached(query).await.map_err(failed)?;
    client.query(&statement, values).await.map_err(failed)
}

/// How many rows a statement changed.
pub(super) async fn execute(
    client: &impl GenericClient,
    query: &str,
    values: &[Value<'_>],
) -> Result<u64, StoreError> {
    let statement = client.prepare_cached(query).await.map_err(failed)?;
    client.execute(&statement, values).await.map_err(failed)
}

/// PostgreSQL's error, for the operator.
pub(super) fn failed(error: tokio_postgres::Error) -> StoreError {
    StoreError::Unavailable(told(&error))
}

/// Its message and code: the detail may hold values of rows.
fn told(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("{} ({})", error.message(), error.code().code()),
        None => {
            let source = std::error::Error::source(error);
            source.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
        }
    }
}

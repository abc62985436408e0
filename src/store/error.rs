//! Why a store did not do something.

/// Why something was not kept or not found out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Somebody changed it meanwhile, or the name is taken.
    #[error("it was changed by somebody else meanwhile")]
    Conflict,
    /// It is not there.
    #[error("there is no such thing")]
    NotFound,
    /// The store cannot do it now: a full disk, a locked file, a lost connection. The text is for the operator.
    #[error("the store is not available: {0}")]
    Unavailable(String),
}

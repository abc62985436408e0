//! What a look-up reads from.

use rusqlite::Connection;

use crate::store::sqlite::known::Known;
use crate::store::sqlite::segments::Shelf;

/// All that is kept, for one look-up.
pub(super) struct View<'a> {
    /// The tables.
    pub(super) connection: &'a Connection,
    /// Which row has which name.
    pub(super) known: &'a Known,
    /// The calls of chunks; none in memory, where they are in the tables.
    pub(super) shelf: Option<&'a Shelf>,
}

//! Programs whose commits are checked.
//!
//! - [`model`]: the model program
//! - [`sqlite`]: transactions of SQLite
//! - [`servers`]: Berkeley DB, MariaDB, PostgreSQL and RocksDB
//! - [`acknowledged`]: commits that a program wrote down as acknowledged

pub mod acknowledged;
pub mod model;
pub mod servers;
pub mod sqlite;

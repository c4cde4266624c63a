//! For tests: a store whose records somebody else has changed, with the tables and the checksums of redb in order.
//!
//! The file is as a program with a fault, or somebody who wants to see a volume of others, could write it: only the
//! check at the next start stands between such records and clients.

use super::change::{READING, WRITING, WriteTables, begin, failed};
use crate::error::Error;
use crate::testing::PowerCutFile;
use redb::{Builder, ReadableTable};

/// Kind of change of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordAction {
    /// The record has another number instead of one of its own.
    Replace,
    /// There is a second record, which differs from the first in one number.
    Add,
    /// The record is gone.
    Remove,
}

/// Change of one record of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordEdit {
    /// Kind of change.
    pub action: RecordAction,
    /// Number of the table, modulo the number of tables.
    pub table: u8,
    /// Number of the record in its table, modulo the number of records.
    pub record: u8,
    /// Number of one of the record's numbers, those of its key first, modulo how many it has.
    pub word: u8,
    /// Difference of the new number to the old one, modulo 2^64 or what the number has room for.
    pub difference: u64,
}

/// Number of tables.
const TABLES: u8 = 10;

/// Record as a name and numbers.
struct Row {
    name: String,
    numbers: Vec<u64>,
}

impl Row {
    fn new(name: &str, numbers: &[u64]) -> Row {
        Row { name: name.to_owned(), numbers: numbers.to_vec() }
    }

    /// Makes a row of a value of bytes, which are numbers of 32 bits.
    fn of_bytes(name: &str, first: &[u64], bytes: &[u8]) -> Row {
        let (words, _) = bytes.as_chunks::<4>();
        let numbers = words.iter().map(|word| u32::from_le_bytes(*word).into());
        Row { name: name.to_owned(), numbers: first.iter().copied().chain(numbers).collect() }
    }

    /// Returns the numbers from `from` on as bytes, 32 bits each.
    fn bytes(&self, from: usize) -> Vec<u8> {
        self.numbers[from..].iter().flat_map(|number| (*number as u32).to_le_bytes()).collect()
    }

    fn pair(&self, from: usize) -> (u64, u64) {
        (self.numbers[from], self.numbers[from + 1])
    }
}

/// Returns the file of a store with changed records. Edits of records that there are not have no effect.
///
/// # Errors
/// [`Error::Store`] if redb fails.
pub fn alter(bytes: Vec<u8>, edits: &[RecordEdit]) -> Result<Vec<u8>, Error> {
    let file = PowerCutFile::with(bytes);
    let database = Builder::new()
        .create_with_backend(file.clone())
        .map_err(|why| Error::Store { what: "open the store", why: why.to_string() })?;
    let transaction = begin(&database)?;
    let mut tables = WriteTables::within(&transaction)?;
    for edit in edits {
        edit.apply(&mut tables)?;
    }
    drop(tables);
    transaction.commit().map_err(failed(WRITING))?;
    drop(database);
    Ok(file.durable())
}

impl RecordEdit {
    fn apply(&self, tables: &mut WriteTables<'_>) -> Result<(), Error> {
        /// Edits one table: a row is made of the bound key and value, and both again of the row.
        macro_rules! edit {
            ($table:expr, |$key:ident, $value:ident| $row:expr, |$edited:ident| $new_key:expr => $new_value:expr) => {{
                let mut rows = Vec::new();
                for row in $table.iter().map_err(failed(READING))? {
                    let (key, value) = row.map_err(failed(READING))?;
                    let ($key, $value) = (key.value(), value.value());
                    rows.push($row);
                }
                let Some(($edited, former)) = self.edited(rows) else { return Ok(()) };
                if self.action != RecordAction::Add {
                    let $edited = &former;
                    $table.remove($new_key).map_err(failed(WRITING))?;
                }
                if self.action != RecordAction::Remove {
                    let $edited = &$edited;
                    $table.insert($new_key, $new_value).map_err(failed(WRITING))?;
                }
            }};
        }
        match self.table % TABLES {
            0 => edit!(
                tables.header,
                |key, value| Row::new(key, &[value]),
                |row| row.name.as_str() => row.numbers[0]
            ),
            1 => edit!(
                tables.devices,
                |key, value| Row::of_bytes(key, &[], value),
                |row| row.name.as_str() => &bytes_of(row)
            ),
            2 => edit!(
                tables.volumes,
                |key, value| Row::of_bytes(key, &[], value),
                |row| row.name.as_str() => &bytes_of(row)
            ),
            3 => edit!(
                tables.extents,
                |key, value| Row::of_bytes("", &[key], value),
                |row| row.numbers[0] => row.bytes(1).as_slice()
            ),
            4 => edit!(
                tables.thin,
                |key, value| Row::new(value.2, &[key, value.0, value.1]),
                |row| row.numbers[0] => (row.numbers[1], row.numbers[2], row.name.as_str())
            ),
            5 => edit!(
                tables.mapped,
                |key, value| Row::new("", &[key.0, key.1, value.0, value.1]),
                |row| row.pair(0) => row.pair(2)
            ),
            6 => edit!(
                tables.origins,
                |key, value| Row::new("", &[key, value]),
                |row| row.numbers[0] => row.numbers[1]
            ),
            7 => edit!(
                tables.shared,
                |key, value| Row::new("", &[key.0.into(), key.1, value.0, value.1]),
                |row| (row.numbers[0] as u32, row.numbers[1]) => row.pair(2)
            ),
            8 => edit!(
                tables.free,
                |key, value| Row::new("", &[key.0.into(), key.1, value]),
                |row| (row.numbers[0] as u32, row.numbers[1]) => row.numbers[2]
            ),
            _ => edit!(
                tables.clearing,
                |key, value| Row::new("", &[key.0.into(), key.1, value]),
                |row| (row.numbers[0] as u32, row.numbers[1]) => row.numbers[2]
            ),
        }
        Ok(())
    }

    /// Returns the chosen row with the change, and without; `None` if there are no rows.
    fn edited(&self, mut rows: Vec<Row>) -> Option<(Row, Row)> {
        let chosen = usize::from(self.record).checked_rem(rows.len())?;
        let former = rows.swap_remove(chosen);
        let mut numbers = former.numbers.clone();
        let word = usize::from(self.word).checked_rem(numbers.len())?;
        numbers[word] = numbers[word].wrapping_add(self.difference);
        let mut name = former.name.clone();
        if self.action == RecordAction::Add && self.difference.is_multiple_of(2) {
            name.push('x');
        }
        Some((Row { name, numbers }, former))
    }
}

/// Returns the bytes of a record of a fixed size.
fn bytes_of<const BYTES: usize>(row: &Row) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let all = row.bytes(0);
    let count = all.len().min(BYTES);
    bytes[..count].copy_from_slice(&all[..count]);
    bytes
}

//! A part of the bench: its name, and what makes its rows.

use super::contest::House;
use crate::error::Error;
use crate::row::Row;

/// How a part makes its rows.
type Measure = Box<dyn Fn(&House<'_>) -> Result<Vec<Row>, Error>>;

/// A part of the bench.
pub struct Part {
    /// As rows have it.
    pub bench: &'static str,
    /// What of it.
    pub case: String,
    measure: Measure,
}

impl Part {
    /// A part whose rows `measure` makes.
    pub fn new(
        bench: &'static str,
        case: impl Into<String>,
        measure: impl Fn(&House<'_>) -> Result<Vec<Row>, Error> + 'static,
    ) -> Part {
        Part { bench, case: case.into(), measure: Box::new(measure) }
    }

    /// Its name, by which it is chosen.
    pub fn name(&self) -> String {
        format!("{}: {}", self.bench.trim_start_matches("serve/"), self.case)
    }

    /// Its rows; what failed is one that says so.
    ///
    /// # Errors
    /// [`Error::Interrupted`].
    pub fn rows(&self, house: &House<'_>) -> Result<Vec<Row>, Error> {
        let rows = match (self.measure)(house) {
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => {
                let empty = Row { case: self.case.clone(), peer: "-".into(), ..Row::default() };
                vec![empty.without_numbers("", &error)]
            }
            Ok(rows) => rows,
        };
        Ok(rows.into_iter().map(|row| Row { bench: self.bench.into(), ..row }).collect())
    }
}

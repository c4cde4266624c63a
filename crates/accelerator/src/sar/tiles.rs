//! Scene in a temporary file, for one that is larger than memory: the corner turn goes through the file.
//!
//! The file holds strips of columns one after another, each with all its rows. So both a strip and some rows of it are one
//! contiguous read or write:
//!
//! ```text
//! | strip 0: row 0, row 1, ... | strip 1: row 0, row 1, ... | ... | last strip, which may be narrower |
//! ```
//!
//! The file has no name: the system removes it when the process ends, however it ends.

use super::memory::SAMPLE;
use crate::error::Error;
use rustfft::num_complex::Complex32;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Scene in a file.
#[derive(Debug)]
pub struct TileFile {
    file: File,
    folder: PathBuf,
    rows: usize,
    columns: usize,
    /// Columns of a strip, but for the last one.
    width: usize,
}

impl TileFile {
    /// Makes a file for a scene.
    ///
    /// # Errors
    /// [`Error::TemporaryFile`] if no file can be made in the folder.
    pub fn new(folder: &Path, rows: usize, columns: usize, width: usize) -> Result<TileFile, Error> {
        let folder = folder.to_path_buf();
        let file = tempfile::tempfile_in(&folder).map_err(|error| failed(&folder, "make", &error))?;
        Ok(TileFile { file, folder, rows, columns, width })
    }

    /// Returns the number of strips.
    pub fn strips(&self) -> usize {
        self.columns.div_ceil(self.width)
    }

    /// Returns the number of columns of a strip.
    pub fn strip_columns(&self, strip: usize) -> usize {
        self.width.min(self.columns - strip * self.width)
    }

    /// Reads a strip.
    ///
    /// # Errors
    /// [`Error::TemporaryFile`] if the file cannot be read.
    pub fn read_strip(&self, strip: usize, samples: &mut [Complex32]) -> Result<(), Error> {
        self.read(self.offset(strip, 0), samples)
    }

    /// Writes a strip.
    ///
    /// # Errors
    /// [`Error::TemporaryFile`] if the file cannot be written.
    pub fn write_strip(&self, strip: usize, samples: &[Complex32]) -> Result<(), Error> {
        self.write(self.offset(strip, 0), samples)
    }

    /// Reads rows, with a buffer that holds their part of a strip.
    ///
    /// # Errors
    /// [`Error::TemporaryFile`] if the file cannot be read.
    pub fn read_rows(
        &self,
        first: usize,
        rows: &mut [Complex32],
        part: &mut Vec<Complex32>,
    ) -> Result<(), Error> {
        for strip in 0..self.strips() {
            let (start, width) = (strip * self.width, self.strip_columns(strip));
            part.resize(rows.len() / self.columns * width, Complex32::default());
            self.read(self.offset(strip, first), part)?;
            for (row, piece) in rows.chunks_exact_mut(self.columns).zip(part.chunks_exact(width)) {
                row[start..start + width].copy_from_slice(piece);
            }
        }
        Ok(())
    }

    /// Writes rows, with a buffer that holds their part of a strip.
    ///
    /// # Errors
    /// [`Error::TemporaryFile`] if the file cannot be written.
    pub fn write_rows(
        &self,
        first: usize,
        rows: &[Complex32],
        part: &mut Vec<Complex32>,
    ) -> Result<(), Error> {
        for strip in 0..self.strips() {
            let (start, width) = (strip * self.width, self.strip_columns(strip));
            part.clear();
            for row in rows.chunks_exact(self.columns) {
                part.extend_from_slice(&row[start..start + width]);
            }
            self.write(self.offset(strip, first), part)?;
        }
        Ok(())
    }

    /// Returns the offset of a row of a strip, in bytes.
    fn offset(&self, strip: usize, row: usize) -> u64 {
        ((strip * self.width * self.rows + row * self.strip_columns(strip)) * SAMPLE) as u64
    }

    fn read(&self, offset: u64, samples: &mut [Complex32]) -> Result<(), Error> {
        let bytes = bytemuck::cast_slice_mut(samples);
        self.file.read_exact_at(bytes, offset).map_err(|error| failed(&self.folder, "read", &error))
    }

    fn write(&self, offset: u64, samples: &[Complex32]) -> Result<(), Error> {
        let bytes = bytemuck::cast_slice(samples);
        self.file.write_all_at(bytes, offset).map_err(|error| failed(&self.folder, "write", &error))
    }
}

/// Returns the folder for files that may be larger than memory: TMPDIR, or one that does not lie in memory as /tmp often does.
pub fn folder() -> PathBuf {
    let on_disk = || Some(PathBuf::from("/var/tmp")).filter(|folder| folder.is_dir());
    let named = std::env::var_os("TMPDIR").filter(|name| !name.is_empty()).map(PathBuf::from);
    named.or_else(on_disk).unwrap_or_else(std::env::temp_dir)
}

fn failed(folder: &Path, action: &'static str, error: &std::io::Error) -> Error {
    Error::TemporaryFile { folder: folder.to_owned(), action, reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_strips_are_the_same_samples() {
        let (rows, columns) = (7, 10);
        let scene: Vec<Complex32> =
            (0..rows * columns).map(|index| Complex32::new(index as f32, -1.0)).collect();
        let (mut part, mut back) = (Vec::new(), vec![Complex32::default(); rows * columns]);
        for width in [1, 3, 5, 10] {
            let file = TileFile::new(&std::env::temp_dir(), rows, columns, width).unwrap();
            file.write_rows(0, &scene[..3 * columns], &mut part).unwrap();
            file.write_rows(3, &scene[3 * columns..], &mut part).unwrap();
            for strip in 0..file.strips() {
                let mut samples = vec![Complex32::default(); rows * file.strip_columns(strip)];
                file.read_strip(strip, &mut samples).unwrap();
                assert_eq!(samples[0], scene[strip * width]);
                assert_eq!(
                    *samples.last().unwrap(),
                    scene[(rows - 1) * columns + columns.min((strip + 1) * width) - 1]
                );
                file.write_strip(strip, &samples).unwrap();
            }
            file.read_rows(0, &mut back, &mut part).unwrap();
            assert_eq!(back, scene, "strips of {width}");
        }
    }

    #[test]
    fn a_folder_that_is_missing_is_named() {
        let error = TileFile::new(Path::new("/nonexistent"), 1, 1, 1).unwrap_err().to_string();
        assert!(
            error.contains("temporary file in /nonexistent") && error.contains("name another folder"),
            "{error}"
        );
    }
}

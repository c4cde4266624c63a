//! Stages: operations on the data between source and sink, one module each.
//!
//! A kind of stage is one row of [`KINDS`] and one module, which defines a type that implements
//! [`StageType`], the row (name, syntax, options, the function that parses them), and the [`Filter`] that
//! does the work. Nothing outside of such a module asks a stage for its kind; callers ask for its role.
//! Called by [`crate::flow`] and the modules below it.

#[cfg(feature = "accelerator")]
mod accel;
mod compress;
mod decompress;
mod exec;
mod filter;
mod hash;
mod limit;
mod live;
mod rate;
mod tee;
mod zstd;

use crate::block_io::{Input, Output};
use crate::control::Control;
use crate::end::SinkSettings;
use crate::error::Error;
use crate::hash::HashAlgorithm;
use crate::movers::Mover;
use crate::report::{Acceleration, Hash};
use bywash_options::{Row, Words, among};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;
use std::sync::Arc;

pub(crate) use exec::Program;
pub(crate) use filter::{Chain, Demand, Filter};

/// An operation on the data of a flow between its source and its sink.
///
/// ```
/// use bywash_flow::Stage;
///
/// let stage: Stage = "compress:zstd,level=9".parse()?;
/// assert_eq!(stage.to_string(), "compress:zstd,level=9");
/// # Ok::<(), bywash_flow::Error>(())
/// ```
#[derive(Clone)]
pub struct Stage {
    /// The parsed stage, by its own type.
    pub(crate) kind: Arc<dyn StageType>,
}

/// A kind of stage: its row, and the function that parses the words of such a stage.
pub(crate) struct StageKind {
    row: Row,
    parse: fn(&mut Words<'_>) -> Result<Stage, Error>,
}

/// All kinds of stages, in the order in which messages list them.
static KINDS: &[&StageKind] = &[
    &hash::KIND,
    &tee::KIND,
    &limit::KIND,
    &rate::KIND,
    &live::KIND,
    &compress::KIND,
    &decompress::KIND,
    #[cfg(feature = "accelerator")]
    &accel::KIND,
    &exec::KIND,
];

/// Returns the rows of all kinds of stages.
pub fn stages() -> impl Iterator<Item = &'static Row> {
    KINDS.iter().map(|kind| &kind.row)
}

/// A parsed stage.
pub(crate) trait StageType: fmt::Display + fmt::Debug + Send + Sync {
    /// Returns the part that the stage plays in a flow.
    fn role(&self) -> StageRole<'_>;
}

/// Part that a stage plays in a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StageRole<'a> {
    /// The data passes a filter in this process.
    Filter(&'a dyn FilterStage),
    /// The flow is split at a program, which the shell runs by this command.
    Program(&'a str),
    /// The flow is split at a device, which computes on the data while other data is read and written.
    #[cfg_attr(not(feature = "accelerator"), expect(dead_code))]
    Device(&'a dyn DeviceStage),
}

/// A stage whose data passes a filter in this process.
pub(crate) trait FilterStage: fmt::Display + fmt::Debug + Send + Sync {
    /// Returns the bound that is all that the stage does, so that a mover can keep it without a filter; `None`
    /// if the stage must see the data.
    fn bound(&self) -> Option<Bound>;

    /// Returns true if the data leaves the stage as it came, up to a limit.
    fn keeps_data(&self) -> bool;

    /// Returns true if the stage may leave out units of a stream.
    fn drops_units(&self) -> bool {
        false
    }

    /// Creates the filter.
    ///
    /// # Errors
    /// [`Error::Io`] if a library cannot be set up; for a stage with a sink those of
    /// [`crate::endpoint::EndpointType::open_sink`].
    fn filter(&self, context: &FilterContext<'_>) -> Result<Box<dyn Filter>, Error>;
}

/// A stage whose data passes a device.
pub(crate) trait DeviceStage: fmt::Display + fmt::Debug + Send + Sync {
    /// Starts the device's work, in blocks of `block` bytes if the user has said how many.
    ///
    /// # Errors
    /// [`Error::Usage`] if the device is not there or cannot do this work; [`Error::Io`] if it fails.
    fn start(&self, block: Option<usize>) -> Result<DeviceWork, Error>;
}

/// Work of a device in a flow: the end that is fed, the end that gives output, and their account.
pub(crate) struct DeviceWork {
    pub(crate) intake: Box<dyn Output>,
    pub(crate) outlet: Box<dyn Input>,
    pub(crate) account: Arc<dyn DeviceAccount>,
}

/// Account of a device's work, complete once both ends have been closed.
pub(crate) trait DeviceAccount: Send + Sync {
    /// Returns the hash of the data, if the device has computed one.
    fn hash(&self) -> Option<Hash>;

    /// Returns what the device has done.
    fn acceleration(&self) -> Acceleration;
}

/// Bound on the data of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Greatest number of bytes.
    Bytes(u64),
    /// Greatest rate, in bytes a second.
    BytesPerSecond(u64),
}

/// Circumstances in which a filter is created.
#[derive(Clone, Copy)]
pub(crate) struct FilterContext<'a> {
    pub(crate) settings: &'a SinkSettings,
    /// Mover that the user forces; `None` if the planner chooses.
    pub(crate) via: Option<Mover>,
    pub(crate) control: &'a Control,
}

impl Stage {
    /// Creates a stage that computes a hash of the data for the report.
    pub fn hash(algorithm: HashAlgorithm) -> Stage {
        Stage::new(hash::HashData { algorithm, expect: None })
    }

    /// Creates a stage that makes the flow fail unless the data has the hash of these hexadecimal digits.
    ///
    /// # Errors
    /// [`Error::Usage`] if the algorithm's hashes do not look like that.
    pub fn expect_hash(algorithm: HashAlgorithm, digits: &str) -> Result<Stage, Error> {
        let expect = hash::digits(algorithm, digits).map_err(Error::Usage)?;
        Ok(Stage::new(hash::HashData { algorithm, expect: Some(expect) }))
    }

    /// Creates a stage that ends the flow after this number of bytes.
    pub(crate) fn limit(bytes: u64) -> Stage {
        Stage::new(limit::Limit(bytes))
    }

    fn new(stage: impl StageType + 'static) -> Stage {
        Stage { kind: Arc::new(stage) }
    }

    /// Returns the bound that is all that the stage does; `None` if it does more.
    pub(crate) fn bound(&self) -> Option<Bound> {
        match self.kind.role() {
            StageRole::Filter(filter) => filter.bound(),
            StageRole::Program(_) | StageRole::Device(_) => None,
        }
    }
}

/// Parses the address of a stage that is nothing but a number of bytes.
fn amount(words: &Words<'_>) -> Result<u64, Error> {
    words.check_all_taken()?;
    let address = words.address()?;
    match bywash_quantity::size(address) {
        Ok(0) => Err(words.error("nothing would pass: give at least 1").into()),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(words.error(format!("'{address}' is {error}")).into()),
    }
}

impl FromStr for Stage {
    type Err = Error;

    fn from_str(text: &str) -> Result<Stage, Error> {
        OsStr::new(text).try_into()
    }
}

/// Parses an argument of the command line; the path of `tee:` need not be UTF-8.
impl TryFrom<&OsStr> for Stage {
    type Error = Error;

    fn try_from(text: &OsStr) -> Result<Stage, Error> {
        let known: Vec<&str> = stages().map(|row| row.name).collect();
        let bytes = text.as_bytes();
        if bytes == live::KIND.row.name.as_bytes() {
            return (live::KIND.parse)(&mut Words::cut(&live::KIND.row, text, b""));
        }
        let Some(colon) = bytes.iter().position(|byte| *byte == b':') else {
            let text = text.to_string_lossy();
            return Err(Error::Usage(format!("'{text}' is no stage{}", among(&text, &known))));
        };
        let (name, rest) = (&bytes[..colon], &bytes[colon + 1..]);
        match KINDS.iter().find(|kind| kind.row.name.as_bytes() == name) {
            Some(kind) => (kind.parse)(&mut Words::cut(&kind.row, text, rest)),
            None => {
                let (name, text) = (String::from_utf8_lossy(name), text.to_string_lossy());
                Err(Error::Usage(format!(
                    "'{text}': there is no stage of the kind '{name}'{}",
                    among(&name, &known)
                )))
            }
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(out)
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.kind, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_written_as_it_was() {
        let expect = format!("hash:sha256,expect={}", "0f".repeat(32));
        for text in [
            "hash:sha256",
            "hash:sha512",
            "hash:blake3",
            &expect,
            "tee:file:x,append",
            "limit:10",
            "rate:1048576",
            "live:",
            "live:y4m",
            "live:wav,block=0.01,late=never",
            "live:ts,late=0.5",
            "live:raw,rate=1000,unit=10",
            "compress:zstd",
            "compress:zstd,level=9",
            "decompress:",
            "exec:tr a,b c,d | cat",
        ] {
            assert_eq!(text.parse::<Stage>().unwrap_or_else(|error| panic!("{error}")).to_string(), text);
        }
        assert_eq!("live".parse::<Stage>().unwrap().to_string(), "live:");
        assert_eq!("rate:1M".parse::<Stage>().unwrap().to_string(), "rate:1048576");
    }

    #[test]
    fn the_rows_are_complete() {
        for row in stages() {
            let error = format!("{}:", row.name).parse::<Stage>();
            assert!(!error.is_err_and(|error| error.to_string().contains("no stage of the kind")));
            assert!(!row.sentence.is_empty() && !row.sentence.ends_with('.'), "{}", row.name);
        }
        let hash = stages().find(|row| row.name == "hash").unwrap();
        for algorithm in HashAlgorithm::ALL {
            assert!(hash.sentence.contains(&algorithm.to_string()), "{algorithm}");
        }
        let level = stages().find(|row| row.name == "compress").unwrap().options[0].default.unwrap();
        assert_eq!(
            format!("compress:zstd,level={level}").parse::<Stage>().unwrap().to_string(),
            "compress:zstd"
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, said) in [
            ("hash", "is no stage"),
            ("hsh:x", "no stage of the kind 'hsh'; did you mean 'hash'?"),
            ("hash:md4", "no hash 'md4'"),
            ("hash:sha256,expect=00", "64 hexadecimal digits"),
            ("tee:", "is empty"),
            ("limit:0", "nothing would pass"),
            ("limit:x", "is not a size"),
            ("compress:gzip", "only zstd"),
            ("compress:zstd,level=30", "1 to 19"),
            ("decompress:gzip", "only zstd"),
            ("exec: ", "a command is missing"),
        ] {
            let error = text.parse::<Stage>().expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}

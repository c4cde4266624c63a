//! Specifications of devices on the command line: `NAME=KIND:ADDRESS[,OPTION...]`.
//!
//! ```text
//!   fast=mem:4G,latency=300,bandwidth=2G/s
//!   disk=file:/var/lib/bywash/disk,size=100G
//!   nvme=block:/dev/nvme1n1,depth=256
//! ```
//!
//! A kind of device is one row of [`KINDS`] and one module, which defines the row (name, syntax, options), the
//! function that parses these, and an implementation of [`DeviceOptions`]. Kinds of other crates are given to
//! [`Spec::parse`]. A comma in a path is written `\,`,
//! and a backslash `\\`. Invariant: printing a parsed specification gives a text that parses to the same
//! specification. Called by the command-line tool with its user's arguments.

mod file;
mod memory;

use crate::device::Device;
use crate::error::Error;
use crate::grantable::DevicePart;
use bywash_options::{OptionError, Row, Words, among};
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// Name of a device, and how to open it.
///
/// ```
/// use bywash_device::Spec;
///
/// let spec: Spec = "fast=mem:64M,latency=300ns".parse()?;
/// assert_eq!(spec.to_string(), "fast=mem:67108864,latency=300");
/// let mut device = spec.open()?;
/// assert_eq!((spec.name.as_str(), device.geometry().bytes), ("fast", 64 << 20));
/// assert!("fast=men:64M".parse::<Spec>().is_err());
/// # Ok::<_, bywash_device::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Spec {
    /// Name of the device: 1 to 64 of A-Z, a-z, 0-9, '-', '_' and '.'.
    pub name: String,
    options: Arc<dyn DeviceOptions>,
}

/// Options of a device of some kind. They are displayed as they are parsed: `KIND:ADDRESS,OPTION...`.
pub trait DeviceOptions: fmt::Display + fmt::Debug + Send + Sync {
    /// Opens the device.
    ///
    /// # Errors
    /// Those of the device's own constructor.
    fn open(&self) -> Result<Box<dyn Device>, Error>;

    /// Opens all devices that the options describe: one, unless the kind of device has parts.
    ///
    /// # Errors
    /// Same as [`DeviceOptions::open`].
    fn open_parts(&self) -> Result<Vec<DevicePart>, Error> {
        Ok(vec![DevicePart { name: None, device: self.open()?, grantable: None }])
    }

    /// Returns true if the device's contents end with the process that opens it.
    fn is_volatile(&self) -> bool;

    /// Returns path and size of the file that is created when the device is opened, if it does not exist.
    fn file_to_create(&self) -> Option<(&Path, u64)>;

    /// Returns the same options with the path of their file taken from `folder`; `None` if they name no file by a
    /// relative path.
    fn in_folder(&self, _folder: &Path) -> Option<Arc<dyn DeviceOptions>> {
        None
    }
}

/// A kind of device: its row, and the function that parses the words of such a device.
#[derive(Debug)]
pub struct DeviceKind {
    /// Name, syntax and options, from which messages and help are made.
    pub row: Row,
    /// Takes the address and the options of a device of this kind.
    pub parse: fn(&mut Words<'_>) -> Result<Arc<dyn DeviceOptions>, OptionError>,
}

/// All kinds of devices, in the order in which messages list them.
static KINDS: [&DeviceKind; 3] = [&memory::KIND, &file::FILE, &file::BLOCK];

/// Returns the rows of all kinds of devices of this crate.
pub fn device_kinds() -> impl Iterator<Item = &'static Row> {
    KINDS.iter().map(|kind| &kind.row)
}

impl Spec {
    /// Parses the description of a device of a kind of this crate or of the kinds `more`.
    ///
    /// # Errors
    /// [`Error::Spec`] if the text describes no device.
    pub fn parse(text: &str, more: &[&'static DeviceKind]) -> Result<Spec, Error> {
        parse(text, more).map_err(|what| Error::Spec { text: text.to_owned(), what })
    }

    /// Opens the device.
    ///
    /// # Errors
    /// Same as [`Memory::new`], [`File::open`] or the kind's own [`DeviceOptions::open`].
    ///
    /// [`Memory::new`]: crate::Memory::new
    /// [`File::open`]: crate::File::open
    pub fn open(&self) -> Result<Box<dyn Device>, Error> {
        self.options.open()
    }

    /// Opens all devices that the description stands for. A device with parts has several, each of which has a name of
    /// its own: see [`Spec::part`].
    ///
    /// # Errors
    /// Same as [`Spec::open`].
    pub fn open_parts(&self) -> Result<Vec<DevicePart>, Error> {
        self.options.open_parts()
    }

    /// Returns this description under the name of one of its parts: `NAME.PART`. Without a part's name it is the same.
    pub fn part(&self, name: Option<&str>) -> Spec {
        match name {
            Some(part) => Spec { name: format!("{}.{part}", self.name), options: self.options.clone() },
            None => self.clone(),
        }
    }

    /// Returns true if the device's contents end with the process that opens it, as those of memory do.
    pub fn is_volatile(&self) -> bool {
        self.options.is_volatile()
    }

    /// Returns path and size, in bytes, of the file that [`Spec::open`] creates; `None` if it creates no file,
    /// or the file exists.
    pub fn file_to_create(&self) -> Option<(&Path, u64)> {
        self.options.file_to_create().filter(|(path, _)| !path.exists())
    }

    /// Takes a relative path of the device's file from `folder`, for a process whose current folder is another one.
    pub fn in_folder(self, folder: &Path) -> Spec {
        match self.options.in_folder(folder) {
            Some(options) => Spec { options, ..self },
            None => self,
        }
    }
}

impl PartialEq for Spec {
    fn eq(&self, other: &Spec) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Spec {}

/// Greatest length of a device's name, in letters.
const NAME_MAX: usize = 64;

impl FromStr for Spec {
    type Err = Error;

    /// Parses the description of a device of a kind of this crate.
    fn from_str(text: &str) -> Result<Spec, Error> {
        Spec::parse(text, &[])
    }
}

fn parse(text: &str, more: &[&'static DeviceKind]) -> Result<Spec, String> {
    let (name, spec) = text.split_once('=').ok_or("write NAME=SPEC, as in fast=mem:4G")?;
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_plain) {
        return Err(format!("a name has 1 to {NAME_MAX} of A-Z, a-z, 0-9, '-', '_' and '.'"));
    }
    let kinds = || KINDS.iter().chain(more).copied();
    let known: Vec<String> = kinds().map(|kind| kind.row.prefix()).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let Some((kind, rest)) = spec.split_once(':') else {
        return Err(format!("the kind is missing{}", among(spec, &known)));
    };
    let Some(found) = kinds().find(|known| known.row.name == kind) else {
        return Err(format!("there is no kind '{kind}'{}", among(&format!("{kind}:"), &known)));
    };
    let mut words = Words::cut(&found.row, OsStr::new(text), rest.as_bytes());
    let options = (found.parse)(&mut words).and_then(|options| words.check_all_taken().map(|()| options));
    options.map(|options| Spec { name: name.to_owned(), options }).map_err(|error| error.reason().to_owned())
}

/// Takes the option `name`, a number from 1 to `most`.
///
/// # Errors
/// [`OptionError`] if the value is no such number.
fn count(words: &mut Words<'_>, name: &str, most: usize) -> Result<Option<usize>, OptionError> {
    words.value(name, |text| {
        let count = text.parse().ok().filter(|count| (1..=most).contains(count));
        count.ok_or_else(|| format!("'{text}' is no number from 1 to {most}"))
    })
}

impl fmt::Display for Spec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}={}", self.name, self.options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_reads_as_the_same() {
        for (text, printed) in [
            ("a=mem:4G", "a=mem:4294967296"),
            (
                "a.b-c_D=mem:4096,bandwidth=2G,latency=10us",
                "a.b-c_D=mem:4096,latency=10000,bandwidth=2147483648/s",
            ),
            ("a=mem:4K,pages=4K,depth=8", "a=mem:4096,pages=4K,depth=8"),
            ("a=mem:4K,pages=2M", "a=mem:4096"),
            ("a=mem:4M,chunk=2M", "a=mem:4194304,chunk=2097152"),
            ("a=file:/x", "a=file:/x"),
            ("a=file:/x=\\,y\\\\,sparse,size=1G", "a=file:/x=\\,y\\\\,size=1073741824,sparse"),
            (
                "a=block:/dev/x,read-only,engine=threads,threads=2",
                "a=block:/dev/x,read-only,engine=threads,threads=2",
            ),
            ("a=file:rel,cached,engine=io_uring,depth=7", "a=file:rel,cached,depth=7,engine=io_uring"),
        ] {
            let spec: Spec = text.parse().unwrap();
            assert_eq!(spec.to_string(), printed);
            assert_eq!(printed.parse::<Spec>().unwrap(), spec);
        }
    }

    #[test]
    fn relative_paths_are_taken_from_a_folder_and_all_else_stays() {
        for (text, expected) in [
            ("a=mem:4096", "a=mem:4096"),
            ("a=file:/x\\,y,sparse", "a=file:/x\\,y,sparse"),
            ("a=block:x\\,y,read-only", "a=block:/f\\,g/x\\,y,read-only"),
        ] {
            let spec: Spec = text.parse().unwrap();
            assert_eq!(spec.in_folder(Path::new("/f,g")).to_string(), expected);
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_the_remedy() {
        for (text, what) in [
            ("", "NAME=SPEC"),
            ("mem:4G", "NAME=SPEC"),
            ("=mem:4G", "a name has"),
            ("a/b=mem:4G", "a name has"),
            ("a=4G", "there are mem:, file:, block:"),
            ("a=nvme:0", "no kind 'nvme'"),
            ("a=men:4G", "did you mean 'mem:'?"),
            ("a=mem:", "as in 4096, 64K or 1M"),
            ("a=mem:0", "multiple of 512"),
            ("a=mem:1000", "multiple of 512"),
            ("a=mem:99999999T", "fit 64 bits"),
            ("a=mem:4G,latency=fast", "'latency': 'fast' is not a duration: give nanoseconds"),
            ("a=mem:4G,bandwidth=0", "'bandwidth': nothing would"),
            ("a=mem:4G,pages=1G", "no '1G'; there are 2M, reserved, 4K"),
            ("a=mem:4G,chunk=3M", "'chunk': a chunk has 2M, 4M"),
            ("a=mem:4G,chunk=2G", "'chunk': a chunk has 2M, 4M"),
            ("a=mem:4G,size=3", "no option 'size'"),
            ("a=mem:4G,latencies=3", "did you mean 'latency'?"),
            ("a=mem:4G,depth=0", "from 1 to"),
            ("a=file:", "path is missing"),
            ("a=file:/x,sparse=yes", "'sparse' takes no value"),
            ("a=file:/x,depth=1,depth=2", "twice"),
            ("a=file:/x,engine=aio", "there are io_uring, threads"),
            ("a=block:/x,size=4K", "no option 'size'"),
        ] {
            let error = text.parse::<Spec>().unwrap_err().to_string();
            assert!(error.contains(what) && error.contains(&format!("'{text}'")), "{text}: {error}");
        }
    }

    #[test]
    fn every_default_is_what_the_option_is_without_it() {
        for kind in KINDS {
            let address = if kind.row.name == "mem" { "4M" } else { "/x" };
            let plain: Spec = format!("a={}{address}", kind.row.prefix()).parse().unwrap();
            for option in kind.row.options {
                let Some(default) = option.default else { continue };
                let given: Spec =
                    format!("a={}{address},{}={default}", kind.row.prefix(), option.name).parse().unwrap();
                assert_eq!(given, plain, "{} {}", kind.row.name, option.name);
            }
        }
    }
}

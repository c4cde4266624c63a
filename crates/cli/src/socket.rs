//! Unix sockets that are named on the command line, with their mode and group.
//!
//! [`ROW`] describes the syntax. Invariant: no process can connect before mode and group are set.

use bywash_link::{SocketFile, listen_at};
use bywash_options::{Escaped, OptionError, OptionRow, Row, Value, Words, option};
use rustix::fs::{AtFlags, Mode, chmod, chownat};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Default mode of a socket: only the user of the server, and root, may connect.
const MODE: u16 = 0o600;
/// Greatest number of connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// Syntax of a Unix socket, such as `/run/bywash/metrics,mode=660,group=prometheus`.
pub static ROW: Row =
    Row { name: "", address: "PATH", sentence: "a Unix socket", options: &[MODE_ROW, GROUP_ROW] };

/// Option for the mode of a socket.
pub const MODE_ROW: OptionRow =
    OptionRow::new("mode", Value::Text("MODE"), "users who may connect, as for chmod(1)").or("600");
/// Option for the group of a socket.
pub const GROUP_ROW: OptionRow = OptionRow::new(
    "group",
    Value::Text("GROUP"),
    "group of the socket: a name or a number; none: the server's",
);

/// A socket as named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketArg {
    /// Name in the file system.
    pub path: PathBuf,
    /// Mode of the socket, which decides who may connect (chmod(1)).
    pub mode: u16,
    /// Group of the socket; `None` for the group of the process.
    pub group: Option<String>,
}

/// Displays the socket with its options, as the command line reads it.
impl fmt::Display for SocketArg {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", Escaped(&self.path.to_string_lossy()))?;
        option(out, "mode", Some(format_args!("{:o}", self.mode)))?;
        option(out, "group", self.group.as_ref())
    }
}

/// Makes a path absolute, for a server whose current folder is another one.
///
/// # Errors
/// The reason, as text, if the path is empty, the current folder is gone, or its name is no text.
pub fn absolute(path: &Path) -> Result<PathBuf, String> {
    let full = std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))?;
    match full.to_str() {
        Some(_) => Ok(full),
        None => Err(format!("{} has bytes that are no text; give another path", full.display())),
    }
}

/// Parses a mode in octal, 0 to 777.
///
/// # Errors
/// The correct form, as text, if `text` is not an octal number of at most nine bits.
pub fn mode(text: &str) -> Result<u16, String> {
    let bits = u16::from_str_radix(text, 8).ok().filter(|bits| bits & !0o777 == 0);
    bits.ok_or_else(|| "give three octal digits, as in 640".to_owned())
}

impl SocketArg {
    /// Parses a socket from the command line.
    ///
    /// # Errors
    /// [`OptionError`] if the path is missing, an option is unknown, or the mode is invalid.
    pub fn read(text: &str) -> Result<SocketArg, OptionError> {
        let mut words = Words::cut(&ROW, OsStr::new(text), text.as_bytes());
        let socket = SocketArg::take(&mut words)?;
        words.check_all_taken().map(|()| socket)
    }

    /// Takes a socket's path and options out of words that may have others.
    ///
    /// # Errors
    /// [`OptionError`] if the path is missing, or the mode is invalid.
    pub fn take(words: &mut Words<'_>) -> Result<SocketArg, OptionError> {
        Ok(SocketArg {
            path: words.path()?,
            mode: words.value("mode", mode)?.unwrap_or(MODE),
            group: words.value("group", name)?,
        })
    }

    /// Returns true if two sockets have the same name, even if their options differ.
    pub fn is_same(&self, other: &SocketArg) -> bool {
        self.path == other.path || absolute(&self.path).is_ok_and(|path| absolute(&other.path) == Ok(path))
    }

    /// Returns the path for reports: absolute, if it can be made so.
    pub fn shown(&self) -> String {
        absolute(&self.path).as_ref().unwrap_or(&self.path).display().to_string()
    }

    /// Makes the path absolute, for a server whose current folder is another one.
    ///
    /// # Errors
    /// Same as [`absolute`].
    pub fn absolute(mut self) -> Result<SocketArg, String> {
        self.path = absolute(&self.path)?;
        Ok(self)
    }

    /// Binds the socket and listens. A socket at which no process listens any more is replaced. Returns the
    /// listener and the name in the file system; drop the listener first, since dropping the name removes it.
    ///
    /// # Errors
    /// The kernel's error if a system call fails; an error with a text if a process listens there already, or
    /// if no such group exists.
    pub fn listen(&self) -> io::Result<(UnixListener, SocketFile)> {
        let group = self.group.as_deref().map(group).transpose()?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let made = listen_at(&self.path, &socket, BACKLOG, |path| permit(path, self.mode, group));
        Ok((UnixListener::from(socket), made.map_err(io::Error::other)?))
    }
}

fn permit(path: &Path, mode: u16, group: Option<u32>) -> io::Result<()> {
    if let Some(group) = group {
        let group = rustix::fs::Gid::from_raw(group);
        chownat(rustix::fs::CWD, path, None, Some(group), AtFlags::empty())?;
    }
    Ok(chmod(path, Mode::from_raw_mode(mode.into()))?)
}

fn name(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("a name or a number is missing".to_owned()) } else { Ok(text.to_owned()) }
}

fn group(name: &str) -> io::Result<u32> {
    let number = name.parse().ok().or_else(|| uzers::get_group_by_name(name).map(|group| group.gid()));
    number.ok_or_else(|| io::Error::other(format!("there is no group '{name}'; give a name or a number")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn sockets_are_read_or_refused_with_the_remedy() {
        let read = SocketArg::read("/run/a\\,b,mode=660,group=7").unwrap();
        assert_eq!(read, SocketArg { path: "/run/a,b".into(), mode: 0o660, group: Some("7".into()) });
        assert_eq!(SocketArg::read(&read.to_string()).unwrap(), read);
        assert_eq!(SocketArg::read("x").unwrap().mode, 0o600);
        for (text, what) in [
            ("", "missing"),
            ("x,mode=9", "octal"),
            ("x,user=y", "mode, group"),
            ("x,groups=y", "did you mean 'group'?"),
            ("x,group=", "a name or a number"),
            ("x,", "option ''"),
        ] {
            assert!(SocketArg::read(text).unwrap_err().to_string().contains(what), "{text}");
        }
    }

    #[test]
    fn a_socket_has_its_mode_and_is_taken_over_from_the_dead_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let socket = SocketArg { path: path.clone(), mode: 0o640, group: None };
        let alive = socket.listen().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        let refused = socket.listen().unwrap_err().to_string();
        assert!(refused.contains("a program that listens there; end"), "{refused}");
        // Leaves the name behind, as a killed process does.
        let (listener, name) = alive;
        name.keep();
        drop(listener);
        let (_listener, name) = socket.listen().unwrap();
        drop(name);
        assert!(!path.exists());
        let nobody = SocketArg { group: Some("no-such-group".into()), ..socket };
        assert!(nobody.listen().unwrap_err().to_string().contains("no group"));
    }
}

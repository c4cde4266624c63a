//! Sockets and addresses at which `bywash serve` exports volumes and tells its metrics: their syntax.

use crate::socket::{self, SocketArg, absolute};
use bywash_options::{OptionError, OptionRow, Row, Value, Words, flag, option};
use std::ffi::OsStr;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A volume, and the socket at which virtual machines reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportArg {
    /// Name of the volume.
    pub volume: String,
    /// The socket and options of the export.
    pub at: VhostUserAddress,
}

/// Socket at which virtual machines connect to a disk, and options of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VhostUserAddress {
    /// The socket, whose mode decides who may connect.
    pub socket: SocketArg,
    /// Greatest number of queues that a virtual machine can use.
    pub queues: u16,
}

/// Syntax of a socket at which virtual machines connect to a disk.
static VHOST_USER: Row = Row {
    name: "",
    address: "PATH",
    sentence: "a Unix socket",
    options: &[
        socket::MODE_ROW,
        socket::GROUP_ROW,
        OptionRow::new(
            "queues",
            Value::Text("N"),
            "greatest number of queues that a virtual machine can use (num-queues of QEMU), 1 to 16",
        )
        .or("16"),
    ],
};

/// Returns the row of the sockets at which virtual machines connect to disks.
pub fn vhost_user_sockets() -> [&'static Row; 1] {
    [&VHOST_USER]
}

pub(super) fn export(text: &str) -> Result<ExportArg, String> {
    match text.split_once('=') {
        Some((volume, at)) if !volume.is_empty() && !at.is_empty() => {
            Ok(ExportArg { volume: volume.to_owned(), at: vhost_user_address(at)? })
        }
        _ => Err("give a volume's name and a socket's, as in disk1=/run/bywash/disk1".to_owned()),
    }
}

/// Parses a socket at which virtual machines connect to a disk, with the options of the disk.
///
/// # Errors
/// The reason, as text, if the path is missing or an option is invalid.
pub fn vhost_user_address(text: &str) -> Result<VhostUserAddress, String> {
    let mut words = Words::cut(&VHOST_USER, OsStr::new(text), text.as_bytes());
    let mut read = || {
        let socket = SocketArg::take(&mut words)?;
        let queues = words.value("queues", queues)?.unwrap_or(bywash_vhost::QUEUES_MAX);
        words.check_all_taken().map(|()| VhostUserAddress { socket, queues })
    };
    read().map_err(|error: OptionError| error.reason().to_owned())
}

fn queues(text: &str) -> Result<u16, String> {
    let queues = text.parse().ok().filter(|queues| (1..=bywash_vhost::QUEUES_MAX).contains(queues));
    queues.ok_or_else(|| format!("give a number from 1 to {}", bywash_vhost::QUEUES_MAX))
}

impl VhostUserAddress {
    /// Makes the path absolute, for a server whose current folder is another one.
    ///
    /// # Errors
    /// The reason, as text, if it cannot be made absolute.
    pub fn absolute(self) -> Result<VhostUserAddress, String> {
        Ok(VhostUserAddress { socket: self.socket.absolute()?, ..self })
    }
}

/// Displays the socket with the options of the disk, as the command line reads it.
impl fmt::Display for VhostUserAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{},queues={}", self.socket, self.queues)
    }
}

/// A volume, and the address at which NBD clients reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdArg {
    /// Name of the volume, and of the export.
    pub volume: String,
    /// The address, which several volumes can have.
    pub address: NbdAddress,
}

/// Address at which NBD clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdAddress {
    /// A Unix socket, whose mode decides who may connect.
    Unix(SocketArg),
    /// A TCP address. Other machines can reach it only if it has TLS, or was declared open.
    Tcp {
        /// Address and port to listen at.
        address: SocketAddr,
        /// Certificates, if clients must use TLS.
        tls: Option<NbdTls>,
        /// True if it was declared open: other machines may reach it, without TLS.
        is_open: bool,
    },
}

impl NbdAddress {
    /// Returns true if two addresses are the same socket, even if their options differ.
    pub fn is_same_socket(&self, other: &NbdAddress) -> bool {
        match (self, other) {
            (NbdAddress::Unix(one), NbdAddress::Unix(other)) => one.is_same(other),
            (NbdAddress::Tcp { address: one, .. }, NbdAddress::Tcp { address: other, .. }) => one == other,
            _ => false,
        }
    }

    /// Returns the address without its options, as messages and reports show it.
    pub fn shown(&self) -> String {
        match self {
            NbdAddress::Unix(at) => format!("unix:{}", at.shown()),
            NbdAddress::Tcp { address, .. } => format!("tcp:{address}"),
        }
    }

    /// Makes the paths absolute, for a server whose current folder is another one.
    ///
    /// # Errors
    /// The reason, as text, if a path cannot be made absolute.
    pub fn absolute(mut self) -> Result<NbdAddress, String> {
        match &mut self {
            NbdAddress::Unix(at) => at.path = absolute(&at.path)?,
            NbdAddress::Tcp { tls: Some(NbdTls { certificate, key, authorities }), .. } => {
                for path in [certificate, key, authorities] {
                    *path = absolute(path)?;
                }
            }
            NbdAddress::Tcp { tls: None, .. } => {}
        }
        Ok(self)
    }
}

/// Displays the address with its options, as the command line reads it.
impl fmt::Display for NbdAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdAddress::Unix(at) => write!(out, "unix:{at}"),
            NbdAddress::Tcp { address, tls, is_open } => {
                write!(out, "tcp:{address}")?;
                if let Some(NbdTls { certificate, key, authorities }) = tls {
                    option(out, "cert", Some(certificate.display()))?;
                    option(out, "key", Some(key.display()))?;
                    option(out, "clients", Some(authorities.display()))?;
                }
                flag(out, "open", *is_open)
            }
        }
    }
}

/// Files with the certificates of TLS, in the form PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdTls {
    /// Certificate of the server.
    pub certificate: PathBuf,
    /// Key of the server.
    pub key: PathBuf,
    /// Certificates of the authorities of clients.
    pub authorities: PathBuf,
}

/// Syntax of a Unix socket at which NBD clients connect.
static NBD_UNIX: Row =
    Row { name: "unix", address: "PATH", sentence: "a Unix socket", options: socket::ROW.options };

/// Syntax of a TCP address at which NBD clients connect.
static NBD_TCP: Row = Row {
    name: "tcp",
    address: "ADDR:PORT",
    sentence: "a TCP address, such as 127.0.0.1:10809",
    options: &[
        OptionRow::new(
            "cert",
            Value::Text("FILE"),
            "clients must use TLS; FILE has the server's certificate (PEM). It goes with key and clients",
        ),
        OptionRow::new("key", Value::Text("FILE"), "file with the key of the server's certificate"),
        OptionRow::new(
            "clients",
            Value::Text("FILE"),
            "file with the certificates of authorities, one of which must have signed a client's certificate",
        ),
        OptionRow::flag(
            "open",
            "other machines can reach the address, nothing is encrypted, and everybody who can connect may read and write \
             the volume",
        ),
    ],
};

/// Returns the rows of the addresses at which volumes are exported to NBD clients.
pub fn nbd_addresses() -> [&'static Row; 2] {
    [&NBD_UNIX, &NBD_TCP]
}

pub(super) fn nbd(text: &str) -> Result<NbdArg, String> {
    let Some((volume, address)) = text.split_once('=').filter(|(volume, _)| !volume.is_empty()) else {
        let example = "as in disk1=unix:/run/bywash/nbd or disk1=tcp:127.0.0.1:10809";
        return Err(format!("give a volume's name and an address, {example}"));
    };
    Ok(NbdArg { volume: volume.to_owned(), address: nbd_address(address)? })
}

/// Parses an address at which NBD clients connect.
///
/// # Errors
/// The reason, as text, if it is none, or other machines could reach it without TLS.
pub fn nbd_address(text: &str) -> Result<NbdAddress, String> {
    let parsed = if let Some(rest) = text.strip_prefix("unix:") {
        SocketArg::read(rest).map(NbdAddress::Unix)
    } else if let Some(rest) = text.strip_prefix("tcp:") {
        nbd_tcp(Words::cut(&NBD_TCP, OsStr::new(text), rest.as_bytes()))
    } else {
        let example = "as in unix:/run/bywash/nbd or tcp:127.0.0.1:10809";
        return Err(format!("an address begins with 'unix:' or 'tcp:', {example}"));
    };
    parsed.map_err(|error| error.reason().to_owned())
}

fn nbd_tcp(mut words: Words<'_>) -> Result<NbdAddress, OptionError> {
    let text = words.address()?;
    let address: SocketAddr =
        text.parse().map_err(|_| words.error(format!("'{text}' is no address, such as 127.0.0.1:10809")))?;
    let files = (words.path_value("cert")?, words.path_value("key")?, words.path_value("clients")?);
    let is_open = words.flag("open")?;
    words.check_all_taken()?;
    let tls = match files {
        (Some(certificate), Some(key), Some(authorities)) if !is_open => {
            Some(NbdTls { certificate, key, authorities })
        }
        (None, None, None) => None,
        _ => {
            let reason =
                "give cert, key and clients together, for TLS with certificates of both sides, and not open";
            return Err(words.error(reason.to_owned()));
        }
    };
    if tls.is_none() && !is_open && bywash_nbd::check_loopback(&address).is_err() {
        let reason = "other machines can reach it, and nothing is encrypted; give cert, key and clients for TLS, an \
                      address of 127.0.0.0/8 or [::1], or open if everybody who can connect may read and write the volume";
        return Err(words.error(format!("{address}: {reason}")));
    }
    Ok(NbdAddress::Tcp { address, tls, is_open })
}

/// A volume, and the disk of the kernel that it becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UblkArg {
    /// Name of the volume.
    pub volume: String,
    /// The disk.
    pub disk: UblkDisk,
}

/// Disk of the kernel, made by its driver ublk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UblkDisk {
    /// The first one that is free.
    Any,
    /// The disk `/dev/ublkbN` of this number.
    Number(u32),
}

/// Displays the disk as the command line reads it.
impl fmt::Display for UblkDisk {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UblkDisk::Any => out.write_str("any"),
            UblkDisk::Number(number) => write!(out, "/dev/ublkb{number}"),
        }
    }
}

pub(super) fn ublk(text: &str) -> Result<UblkArg, String> {
    match text.split_once('=') {
        Some((volume, disk)) if !volume.is_empty() => {
            Ok(UblkArg { volume: volume.to_owned(), disk: ublk_disk(disk)? })
        }
        _ => Err("give a volume's name and a disk, as in disk1=/dev/ublkb0 or disk1=any".to_owned()),
    }
}

/// Parses a disk of the kernel: `/dev/ublkbN`, or `any`.
///
/// # Errors
/// The reason, as text, if it is neither.
pub fn ublk_disk(text: &str) -> Result<UblkDisk, String> {
    if text == "any" {
        return Ok(UblkDisk::Any);
    }
    let number = text.strip_prefix("/dev/ublkb").and_then(|number| number.parse().ok());
    number
        .map(UblkDisk::Number)
        .ok_or_else(|| format!("'{text}' is neither 'any' nor a disk such as /dev/ublkb0"))
}

/// Socket or address at which metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsArg {
    /// A Unix socket, whose mode decides who may read.
    Unix(SocketArg),
    /// A TCP address.
    Tcp {
        /// Address and port to listen at.
        address: SocketAddr,
        /// File with the token that requests must bear; `None` lets everybody read who can connect.
        token: Option<PathBuf>,
    },
}

/// Syntax of a TCP address at which metrics are served.
static TCP: Row = Row {
    name: "tcp",
    address: "ADDR:PORT",
    sentence: "a TCP address, for metrics alone",
    options: &[
        OptionRow::new(
            "token",
            Value::Text("FILE"),
            "requests must send the token in FILE, which only its owner and group may read (Authorization: Bearer TOKEN)",
        ),
        OptionRow::flag("open", "everybody who can connect may read"),
    ],
};

/// Returns the rows of the sockets that the command line can name.
pub fn sockets() -> [&'static Row; 2] {
    [&socket::ROW, &TCP]
}

pub(super) fn metrics(text: &str) -> Result<MetricsArg, String> {
    let arg = match text.strip_prefix("tcp:") {
        Some(rest) => tcp(Words::cut(&TCP, OsStr::new(text), rest.as_bytes())),
        None => SocketArg::read(text).map(MetricsArg::Unix),
    };
    match arg.map_err(|error| error.reason().to_owned())? {
        MetricsArg::Unix(socket)
            if socket.path.to_str().is_some_and(|path| path.parse::<SocketAddr>().is_ok()) =>
        {
            Err(format!("a TCP address begins with 'tcp:', as in tcp:{text},token=FILE"))
        }
        arg => Ok(arg),
    }
}

fn tcp(mut words: Words<'_>) -> Result<MetricsArg, OptionError> {
    let address = words.address()?;
    let address = address
        .parse()
        .map_err(|_| words.error(format!("'{address}' is no address, such as 127.0.0.1:9105")))?;
    let (token, is_open) = (words.path_value("token")?, words.flag("open")?);
    words.check_all_taken()?;
    match token.is_some() != is_open {
        true => Ok(MetricsArg::Tcp { address, token }),
        false => Err(words.error(
            "give token=FILE, or open if everybody who can connect may read the metrics; one of the two",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The guide's table of sockets is made from their rows.
    #[test]
    fn the_guide_has_the_table_of_sockets_for_virtual_machines() {
        let page = include_str!("../../../../docs/guide/virtual-machines.md");
        let table = bywash_options::guide("socket", vhost_user_sockets());
        assert!(page.contains(&table), "docs/guide/virtual-machines.md has another table than:\n{table}");
    }

    #[test]
    fn disks_of_the_kernel_are_read_as_they_are_written() {
        for (text, disk) in [("any", UblkDisk::Any), ("/dev/ublkb17", UblkDisk::Number(17))] {
            assert_eq!(ublk_disk(text), Ok(disk));
            assert_eq!(disk.to_string(), text);
            assert_eq!(ublk(&format!("v={text}")), Ok(UblkArg { volume: "v".into(), disk }));
        }
        for text in ["", "/dev/ublkb", "/dev/ublkb-1", "/dev/ublkc0", "0", "/dev/ublkb99999999999"] {
            assert!(ublk_disk(text).unwrap_err().contains("/dev/ublkb0"), "{text}");
        }
        assert!(ublk("=any").is_err() && ublk("v").is_err());
    }

    #[test]
    fn the_guide_has_the_table_of_sockets() {
        let page = include_str!("../../../../docs/guide/serve.md");
        let table = bywash_options::guide("socket", sockets());
        assert!(page.contains(&table), "docs/guide/serve.md lacks this table:\n{table}");
        let table = bywash_options::guide("address", nbd_addresses());
        let page = include_str!("../../../../docs/guide/nbd.md");
        assert!(page.contains(&table), "docs/guide/nbd.md lacks this table:\n{table}");
    }

    #[test]
    fn volumes_are_exported_to_nbd_clients_at_addresses() {
        let unix = |path: &str, mode| SocketArg { path: path.into(), mode, group: None };
        let with = |address| Ok(NbdArg { volume: "v".into(), address });
        assert_eq!(nbd("v=unix:/x,mode=660"), with(NbdAddress::Unix(unix("/x", 0o660))));
        let tcp = |address: &str, tls, is_open| {
            let address = address.parse().unwrap();
            NbdAddress::Tcp { address, tls, is_open }
        };
        for address in ["127.0.0.1:10809", "[::1]:1"] {
            assert_eq!(nbd(&format!("v=tcp:{address}")), with(tcp(address, None, false)));
        }
        assert_eq!(nbd("v=tcp:0.0.0.0:1,open"), with(tcp("0.0.0.0:1", None, true)));
        let tls = NbdTls { certificate: "/c".into(), key: "/k".into(), authorities: "/a".into() };
        let with_tls = with(tcp("0.0.0.0:1", Some(tls), false));
        assert_eq!(nbd("v=tcp:0.0.0.0:1,cert=/c,key=/k,clients=/a"), with_tls);
        // A server reads the address as it was displayed.
        for text in [
            "unix:/x\\,y,mode=660,group=kvm",
            "tcp:127.0.0.1:10809",
            "tcp:0.0.0.0:1,open",
            "tcp:0.0.0.0:1,cert=/c\\,d,key=/k,clients=/a",
        ] {
            let address = nbd_address(text).unwrap();
            assert_eq!((address.to_string().as_str(), address.absolute()), (text, nbd_address(text)));
        }
        let absolute = nbd_address("unix:x").unwrap().absolute().unwrap();
        assert!(absolute.is_same_socket(&nbd_address("unix:x,mode=666").unwrap()));
        assert!(!absolute.is_same_socket(&nbd_address("unix:/x").unwrap()));
        for (text, reason) in [
            ("v", "a volume's name"),
            ("=unix:/x", "a volume's name"),
            ("v=/x", "begins with 'unix:'"),
            ("v=unix:", "missing"),
            ("v=unix:/x,mode=x", "octal"),
            ("v=tcp:localhost", "'localhost' is no address"),
            ("v=tcp:0.0.0.0:1", "other machines can reach it"),
            ("v=tcp:192.0.2.1:1", "other machines can reach it"),
            ("v=tcp:192.0.2.1:1,cert=/c,key=/k", "cert, key and clients together"),
            ("v=tcp:127.0.0.1:1,cert=/c,key=/k,clients=/a,open", "and not open"),
            ("v=tcp:127.0.0.1:1,opn", "did you mean 'open'?"),
        ] {
            let error = nbd(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn volumes_are_exported_to_virtual_machines_at_sockets() {
        let socket = SocketArg { path: "/x".into(), mode: 0o660, group: Some("kvm".into()) };
        let with = |queues| VhostUserAddress { socket: socket.clone(), queues };
        assert_eq!(export("v=/x,mode=660,group=kvm"), Ok(ExportArg { volume: "v".into(), at: with(16) }));
        let two = vhost_user_address("/x,queues=2,mode=660,group=kvm").unwrap();
        assert_eq!((&two, vhost_user_address(&two.to_string())), (&with(2), Ok(with(2))));
        for (text, reason) in [
            ("v", "a volume's name"),
            ("v=", "a volume's name"),
            ("v=/x,queues=0", "from 1 to 16"),
            ("v=/x,queues=17", "from 1 to 16"),
            ("v=/x,queue=2", "did you mean 'queues'?"),
        ] {
            let error = export(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn metrics_are_served_at_a_socket_or_an_address() {
        let address = "127.0.0.1:9105".parse().unwrap();
        let with = MetricsArg::Tcp { address, token: Some("/t".into()) };
        assert_eq!(metrics("tcp:127.0.0.1:9105,token=/t"), Ok(with));
        assert_eq!(metrics("tcp:127.0.0.1:9105,open"), Ok(MetricsArg::Tcp { address, token: None }));
        assert!(matches!(metrics("/run/x,mode=660"), Ok(MetricsArg::Unix(socket)) if socket.mode == 0o660));
        for (text, reason) in [
            ("127.0.0.1:9105", "begins with 'tcp:'"),
            ("tcp:host", "'host' is no address"),
            ("tcp:127.0.0.1:9105", "one of the two"),
            ("tcp:127.0.0.1:9105,open,token=/t", "one of the two"),
            ("tcp:127.0.0.1:9105,tokn=/t", "did you mean 'token'?"),
        ] {
            let error = metrics(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}

//! Messages of the control socket: JSON objects, one in each packet, some with descriptors attached.

use crate::access::Access;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Greatest size of a message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 4096;

/// Control message of a client. The first message of a connection is [`ControlRequest::Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ControlRequest {
    /// Introduces the client. Reply: [`ControlReply::Welcome`], with a descriptor of the page of
    /// [`crate::revocations`], which the client maps for reading.
    Hello {
        /// Protocol version of the client: [`crate::VERSION`].
        version: u32,
        /// Name that the client gives itself, shown to people: at most 64 bytes, no control characters.
        name: String,
    },
    /// Opens a grant of a volume, by the volume's name. Reply: [`ControlReply::Granted`].
    Open {
        /// Name of the volume.
        volume: String,
        /// Operations that the client wants to use.
        access: Access,
    },
    /// Opens a grant of a regular file or a block device, whose open descriptor is attached to this message.
    /// The grant allows what the descriptor's access mode allows. Reply: [`ControlReply::Granted`].
    OpenDescriptor {},
    /// Opens a grant of a volume, and asks for the hardware behind it, which then nobody else uses. Only for volumes of
    /// which [`GrantInfo::can_be_direct`] says so. Reply: [`ControlReply::GrantedDirect`].
    OpenDirect {
        /// Name of the volume.
        volume: String,
        /// Operations that the client wants to use.
        access: Access,
    },
    /// Closes a grant. Reply: [`ControlReply::Done`], when no request by this grant is in flight any more.
    Close {
        /// Number of the grant.
        grant: u64,
    },
    /// Sets up a channel over the socket whose descriptor is attached to this message. The client should have
    /// sent its hello message of the channel through that socket already. Reply: [`ControlReply::Done`].
    SetUpChannel {},
    /// Asks for chunks of the memory device behind a grant, to map them. Reply: [`ControlReply::Chunks`].
    Map {
        /// Number of the grant.
        grant: u64,
        /// Index of the first chunk that is asked for, counted from the grant's beginning.
        from: u32,
    },
    /// Lists the volumes that the client may see. Reply: [`ControlReply::Report`], a list of
    /// [`crate::report::Volume`].
    Volumes {},
    /// Asks for the server's state. Administrators only. Reply: [`ControlReply::Report`], a
    /// [`crate::report::Status`].
    Status {},

    /// Creates a volume. This message and the following ones are for administrators: root and the server's
    /// own user. Reply: [`ControlReply::Done`].
    Create {
        /// Name of the volume.
        volume: String,
        /// Name of the device to create the volume on.
        device: String,
        /// Least size of the volume, in bytes. The server rounds it up to whole blocks of the store.
        bytes: u64,
        /// User number of the owner.
        owner: u32,
        /// Group number of the volume.
        group: u32,
        /// Permissions to read and write, as bits of chmod(1).
        mode: u16,
        /// True if blocks are allocated when they are first written, false if all are allocated now. The server rounds
        /// the size of a thin volume up to whole clusters, in which it allocates.
        #[serde(default, skip_serializing_if = "is_false")]
        is_thin: bool,
    },
    /// Resizes a volume. If the volume becomes smaller, the server revokes its grants. Reply:
    /// [`ControlReply::Done`].
    Resize {
        /// Name of the volume.
        volume: String,
        /// Least new size of the volume, in bytes. The server rounds it up to whole blocks of the store.
        bytes: u64,
    },
    /// Renames a volume. Its grants stay valid. Reply: [`ControlReply::Done`].
    Rename {
        /// Name of the volume.
        volume: String,
        /// New name of the volume.
        to: String,
    },
    /// Changes a volume's owner, group, permissions or read-only flag, and revokes its grants. Reply:
    /// [`ControlReply::Done`].
    SetOwnership {
        /// Name of the volume.
        volume: String,
        /// User number of the new owner, or `None` to keep the owner.
        owner: Option<u32>,
        /// Number of the new group, or `None` to keep the group.
        group: Option<u32>,
        /// New permissions as bits of chmod(1), or `None` to keep them.
        mode: Option<u16>,
        /// True to refuse writes by everybody, false to allow them by permission, `None` to keep the flag.
        read_only: Option<bool>,
    },
    /// Takes a snapshot of a thin volume: a volume that nobody can write, with the contents of one instant. All writes that
    /// were completed before this message are in it. Reply: [`ControlReply::Done`], when all of it is durable.
    Snapshot {
        /// Name of the thin volume.
        volume: String,
        /// Name of the snapshot.
        name: String,
    },
    /// Creates a thin volume with the contents, the owner, the group and the mode of a snapshot. Reply:
    /// [`ControlReply::Done`].
    Clone {
        /// Name of the snapshot.
        snapshot: String,
        /// Name of the new volume.
        name: String,
    },
    /// Gives a thin volume the contents and the size of one of its snapshots, and revokes its grants. Refused while a
    /// client may write the volume. Reply: [`ControlReply::Done`].
    Rollback {
        /// Name of the thin volume.
        volume: String,
        /// Name of the snapshot.
        snapshot: String,
    },
    /// Removes a volume and revokes its grants. The server clears the volume's blocks before another volume
    /// gets them. Reply: [`ControlReply::Done`].
    Remove {
        /// Name of the volume.
        volume: String,
    },
    /// Revokes all grants of a volume. Reply: [`ControlReply::Done`], when no request by these grants is in
    /// flight any more.
    Revoke {
        /// Name of the volume.
        volume: String,
    },
    /// Exports a volume to programs that are no clients, until the server ends. Reply: [`ControlReply::Done`], when
    /// they can connect.
    Export {
        /// Name of the volume.
        volume: String,
        /// Protocol by which the volume is exported.
        protocol: ExportProtocol,
        /// Address at which the programs connect, with options, as on the server's command line. Paths are absolute.
        address: String,
    },
    /// Ends exports of a volume. Reply: [`ControlReply::Done`], when no request of theirs is in flight any more.
    Unexport {
        /// Name of the volume when it was exported.
        volume: String,
        /// Protocol and address of the only export to end, or `None` to end all exports of the volume.
        only: Option<(ExportProtocol, String)>,
    },
    /// Adds a device, until the server ends. Reply: [`ControlReply::Done`], when volumes on it can be used.
    AddDevice {
        /// Name and options of the device, as on the server's command line. Paths are absolute.
        device: String,
    },
    /// Takes a device away that no client uses. Its volumes stay in the store. Reply: [`ControlReply::Done`], when the
    /// device is closed.
    DropDevice {
        /// Name of the device.
        device: String,
    },
}

/// Protocol by which a volume is exported to programs that are no clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExportProtocol {
    /// A disk of virtual machines, by vhost-user-blk.
    VhostUser,
    /// A disk of NBD clients.
    Nbd,
    /// A disk of the kernel, by its driver ublk.
    Ublk,
}

/// Control message of a server. The server sends one for each [`ControlRequest`], in the order of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum ControlReply {
    /// Reply to [`ControlRequest::Hello`].
    Welcome {
        /// Protocol version of the server.
        version: u32,
        /// Number of the client, which reports use too.
        client: u64,
        /// Greatest depth of the client's channel, in requests.
        depth_max: u32,
        /// Greatest size of the client's arena, in bytes.
        arena_bytes_max: u64,
        /// Greatest number of grants that the client may hold at a time, and number of words in the page that
        /// is attached to this message.
        grants_max: u32,
    },
    /// Reply to [`ControlRequest::Open`] and [`ControlRequest::OpenDescriptor`].
    Granted(GrantInfo),
    /// Reply to [`ControlRequest::OpenDirect`], with the descriptors of an NVMe controller's function: its VFIO container,
    /// its group, and the function itself. The client closes them before it closes the grant.
    GrantedDirect {
        /// Grant of the volume.
        grant: GrantInfo,
        /// PCI address of the function.
        address: String,
        /// Number of the namespace that the volume is in.
        namespace: u32,
        /// Offset of the volume in the namespace, in bytes.
        offset: u64,
        /// True if the client could harm others by the function, so that the server grants it to trusted users only.
        needs_trust: bool,
    },
    /// Reply to [`ControlRequest::Map`], with the descriptors of consecutive chunks: as many as fit into one
    /// message, beginning with the chunk that the client asked for. The client maps each from offset 0, for
    /// reading, or for writing too if the grant allows that.
    Chunks {
        /// Size of a chunk, in bytes; the grant's last chunk may be shorter.
        chunk_bytes: u64,
        /// Number of chunks of the whole grant.
        count: u32,
    },
    /// The operation was carried out.
    Done {},
    /// Report as JSON, in the memory file whose descriptor is attached to this message. The client reads it
    /// from offset 0.
    Report {},
    /// The server refused the message or failed to carry it out.
    Refused(Refusal),
}

/// Properties of a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantInfo {
    /// Number of the grant, which requests use.
    pub grant: u64,
    /// Size of the grant, in bytes.
    pub bytes: u64,
    /// Logical block of the device, in bytes: offsets and lengths of requests are multiples of it.
    pub block: u32,
    /// Operations that the grant allows.
    pub access: Access,
    /// Name of the device that holds the grant's data.
    pub device: String,
    /// Reason why the client cannot map the grant, or `None` if the client can.
    pub unmappable_reason: Option<String>,
    /// True if the device is memory of the server, whose contents are lost when the server ends.
    #[serde(default)]
    pub is_volatile: bool,
    /// True if the client may ask for the hardware behind the volume by [`ControlRequest::OpenDirect`].
    #[serde(default, skip_serializing_if = "is_false")]
    pub can_be_direct: bool,
}

/// Reason why the server refused a control message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Kind of the refusal, for programs.
    pub code: RefusalKind,
    /// Text for people: what was wrong, and what to do about it.
    pub message: String,
}

/// Kind of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RefusalKind {
    /// The message is not a message of this protocol, or is not allowed in this state of the connection.
    Malformed,
    /// Client and server speak different versions of the protocol.
    Version,
    /// The client lacks the permission.
    Denied,
    /// The volume, device or grant does not exist.
    Missing,
    /// A volume of that name exists already.
    Exists,
    /// An argument or a descriptor cannot be used for the operation.
    Unfit,
    /// A limit is reached (clients, grants, channels, bytes), or the operation collides with another one and
    /// can be retried.
    Limit,
    /// The device has no space left, or only in too many fragments.
    Full,
    /// The server failed, or something that it depends on.
    Failed,
}

/// Error for bytes that are not a message of this protocol, or a message that does not fit into a packet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no message of this protocol: {0}")]
pub struct DecodeError(String);

fn is_false(value: &bool) -> bool {
    !value
}

fn to_bytes(message: &impl Serialize) -> Result<Vec<u8>, DecodeError> {
    let bytes = serde_json::to_vec(message).map_err(|error| DecodeError(error.to_string()))?;
    match bytes.len() {
        0..=MESSAGE_BYTES_MAX => Ok(bytes),
        length => Err(DecodeError(format!("{length} bytes are more than {MESSAGE_BYTES_MAX}"))),
    }
}

fn of_bytes<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    serde_json::from_slice(bytes).map_err(|error| DecodeError(error.to_string()))
}

impl ControlRequest {
    /// Encodes the message as one packet.
    ///
    /// # Errors
    /// [`DecodeError`] if the packet would be longer than [`MESSAGE_BYTES_MAX`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, DecodeError> {
        to_bytes(self)
    }

    /// Decodes a packet.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not JSON, or not a control message of a client.
    pub fn from_bytes(bytes: &[u8]) -> Result<ControlRequest, DecodeError> {
        of_bytes(bytes)
    }

    /// Returns true if only the server's own user and root may send this message, which changes volumes, exports or
    /// devices.
    pub fn is_for_administrators(&self) -> bool {
        matches!(
            self,
            ControlRequest::Create { .. }
                | ControlRequest::Resize { .. }
                | ControlRequest::Rename { .. }
                | ControlRequest::SetOwnership { .. }
                | ControlRequest::Snapshot { .. }
                | ControlRequest::Clone { .. }
                | ControlRequest::Rollback { .. }
                | ControlRequest::Remove { .. }
                | ControlRequest::Revoke { .. }
                | ControlRequest::Export { .. }
                | ControlRequest::Unexport { .. }
                | ControlRequest::AddDevice { .. }
                | ControlRequest::DropDevice { .. }
        )
    }
}

impl ControlReply {
    /// Encodes the message as one packet.
    ///
    /// # Errors
    /// [`DecodeError`] if the packet would be longer than [`MESSAGE_BYTES_MAX`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, DecodeError> {
        to_bytes(self)
    }

    /// Decodes a packet.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes are not JSON, or not a control message of a server.
    pub fn from_bytes(bytes: &[u8]) -> Result<ControlReply, DecodeError> {
        of_bytes(bytes)
    }
}

impl Refusal {
    /// Creates a refusal. A message that would not fit into a packet is cut.
    pub fn new(code: RefusalKind, message: impl fmt::Display) -> Refusal {
        let mut message = message.to_string();
        if message.len() > MESSAGE_TEXT_MAX {
            let end = (0..=MESSAGE_TEXT_MAX).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
            message.truncate(end);
        }
        Refusal { code, message }
    }
}

/// Greatest length of a refusal's text, in bytes: JSON encodes a byte with at most six, and 256 bytes are
/// left for the rest.
const MESSAGE_TEXT_MAX: usize = (MESSAGE_BYTES_MAX - 256) / 6;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_messages() {
        for (ask, golden) in [
            (
                ControlRequest::Hello { version: 1, name: "x".into() },
                r#"{"ask":"hello","version":1,"name":"x"}"#,
            ),
            (ControlRequest::OpenDescriptor {}, r#"{"ask":"open-descriptor"}"#),
            (ControlRequest::Close { grant: 1 << 32 }, r#"{"ask":"close","grant":4294967296}"#),
            (
                ControlRequest::OpenDirect { volume: "a".into(), access: Access::ReadWrite },
                r#"{"ask":"open-direct","volume":"a","access":"read-write"}"#,
            ),
            (ControlRequest::SetUpChannel {}, r#"{"ask":"set-up-channel"}"#),
            (ControlRequest::Map { grant: 7, from: 16 }, r#"{"ask":"map","grant":7,"from":16}"#),
            (
                ControlRequest::Snapshot { volume: "a".into(), name: "b".into() },
                r#"{"ask":"snapshot","volume":"a","name":"b"}"#,
            ),
            (
                ControlRequest::Clone { snapshot: "b".into(), name: "c".into() },
                r#"{"ask":"clone","snapshot":"b","name":"c"}"#,
            ),
            (
                ControlRequest::Rollback { volume: "a".into(), snapshot: "b".into() },
                r#"{"ask":"rollback","volume":"a","snapshot":"b"}"#,
            ),
            (
                ControlRequest::Unexport {
                    volume: "a".into(),
                    only: Some((ExportProtocol::VhostUser, "/run/a".into())),
                },
                r#"{"ask":"unexport","volume":"a","only":["vhost-user","/run/a"]}"#,
            ),
        ] {
            assert_eq!(ask.to_bytes().unwrap(), golden.as_bytes());
            assert_eq!(ControlRequest::from_bytes(golden.as_bytes()), Ok(ask));
        }
        let granted = GrantInfo {
            grant: 5,
            bytes: 4096,
            block: 512,
            access: Access::Read,
            device: "fast".into(),
            unmappable_reason: None,
            is_volatile: true,
            can_be_direct: false,
        };
        let golden = r#"{"answer":"granted","grant":5,"bytes":4096,"block":512,"access":"read","device":"fast","unmappable_reason":null,"is_volatile":true}"#;
        assert_eq!(ControlReply::Granted(granted.clone()).to_bytes().unwrap(), golden.as_bytes());
        assert_eq!(ControlReply::from_bytes(golden.as_bytes()), Ok(ControlReply::Granted(granted)));
        let refused = ControlReply::Refused(Refusal::new(RefusalKind::Denied, "no"));
        let golden = r#"{"answer":"refused","code":"denied","message":"no"}"#;
        assert_eq!(refused.to_bytes().unwrap(), golden.as_bytes());
    }

    #[test]
    fn rubbish_is_named() {
        for rubbish in
            ["", "{", "[]", r#"{"ask":"fly"}"#, r#"{"ask":"open"}"#, r#"{"ask":"close","grant":1,"x":2}"#]
        {
            let error = ControlRequest::from_bytes(rubbish.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("it is no message"), "{error}");
        }
        let long = ControlRequest::Open { volume: "x".repeat(MESSAGE_BYTES_MAX), access: Access::Read };
        assert!(long.to_bytes().unwrap_err().to_string().contains("more than"));
    }

    #[test]
    fn whatever_is_said_of_a_refusal_fits() {
        for text in ["\u{1}", "é", "\"", "x"] {
            let refused = ControlReply::Refused(Refusal::new(RefusalKind::Failed, text.repeat(10_000)));
            let bytes = refused.to_bytes().unwrap();
            assert!(bytes.len() > MESSAGE_TEXT_MAX && ControlReply::from_bytes(&bytes) == Ok(refused));
        }
    }

    proptest! {
        #[test]
        fn nothing_that_comes_is_worse_than_an_error(bytes: Vec<u8>) {
            let _ = ControlRequest::from_bytes(&bytes);
            let _ = ControlReply::from_bytes(&bytes);
        }
    }
}

//! The messages of the control socket: JSON objects, one a packet, with descriptors where it is said.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Most bytes of a message.
pub const MESSAGE_BYTES_MAX: usize = 4096;

/// What a grant allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Both.
    ReadWrite,
}

impl Access {
    /// Whether one may read.
    pub fn reads(self) -> bool {
        self != Access::Write
    }

    /// Whether one may write.
    pub fn writes(self) -> bool {
        self != Access::Read
    }
}

impl fmt::Display for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Access::Read => "read",
            Access::Write => "write",
            Access::ReadWrite => "read-write",
        })
    }
}

/// What a client asks. The first is [`Ask::Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ask {
    /// To be let in. Answer: [`Answer::Welcome`], with the page of [`crate::notices`] to be mapped for reading.
    Hello {
        /// What it speaks: [`crate::VERSION`].
        version: u32,
        /// What it calls itself, for people: 64 bytes at most.
        name: String,
    },
    /// A grant by a volume's name. Answer: [`Answer::Granted`].
    Open {
        /// Its name.
        volume: String,
        /// What is wanted.
        access: Access,
    },
    /// A grant by the descriptor that comes with this, of a regular file or a block device. What its access mode is, the
    /// grant allows. Answer: [`Answer::Granted`].
    OpenDescriptor {},
    /// To give a grant back. Answer: [`Answer::Done`], when no request by it is under way any more.
    Close {
        /// Which.
        grant: u64,
    },
    /// A channel over the socket that comes with this; the client's hello of the channel should be in it already.
    /// Answer: [`Answer::Done`].
    Channel {},
    /// Chunks of the medium behind a grant, from a number on. Answer: [`Answer::Chunks`].
    Map {
        /// Which grant.
        grant: u64,
        /// The first one that is wanted, counted in the grant.
        from: u32,
    },
    /// What volumes the client may see. Answer: [`Answer::Report`] of [`crate::report::Volume`]s.
    Volumes {},
    /// What the server does. Answer: [`Answer::Report`], a [`crate::report::Status`].
    Status {},

    /// To make a volume. This and what follows is for the server's own user and for root. Answer: [`Answer::Done`].
    Create {
        /// Its name.
        volume: String,
        /// The device that it is to be on.
        device: String,
        /// How large, at least.
        bytes: u64,
        /// Whose it is.
        owner: u32,
        /// Its group.
        group: u32,
        /// Who may do what, as chmod(1) has it: bits to read and to write.
        mode: u16,
    },
    /// To make a volume larger or smaller. Grants of a smaller one are taken back. Answer: [`Answer::Done`].
    Resize {
        /// Its name.
        volume: String,
        /// How large, at least.
        bytes: u64,
    },
    /// To give a volume another name. Answer: [`Answer::Done`].
    Rename {
        /// Its name.
        volume: String,
        /// The new one.
        to: String,
    },
    /// To change who may do what with a volume; its grants are taken back. Answer: [`Answer::Done`].
    Permit {
        /// Its name.
        volume: String,
        /// Whose it is, if that changes.
        owner: Option<u32>,
        /// Its group, if that changes.
        group: Option<u32>,
        /// Who may do what, if that changes.
        mode: Option<u16>,
        /// Whether nobody may write it, if that changes.
        read_only: Option<bool>,
    },
    /// To remove a volume; its grants are taken back and its contents cleared. Answer: [`Answer::Done`].
    Remove {
        /// Its name.
        volume: String,
    },
    /// To take back all grants of a volume. Answer: [`Answer::Done`], when no request by them is under way any more.
    Revoke {
        /// Its name.
        volume: String,
    },
}

/// What a server answers, once for each [`Ask`], in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// To [`Ask::Hello`].
    Welcome {
        /// What the server speaks.
        version: u32,
        /// The client's number, as reports name it.
        client: u64,
        /// Most requests that its channel may have under way.
        depth_max: u32,
        /// Most bytes of its arena.
        arena_bytes_max: u64,
        /// Most grants that it may have at a time: as many words are in the page that came with this.
        grants_max: u32,
    },
    /// To [`Ask::Open`] and [`Ask::OpenDescriptor`].
    Granted(Granted),
    /// To [`Ask::Map`], with a descriptor for each chunk from the one that was asked for on, as many as fit. Each is to
    /// be mapped from its beginning, with the grant's right.
    Chunks {
        /// Bytes of a chunk; of the last, what is left.
        chunk_bytes: u64,
        /// How many the grant has.
        count: u32,
    },
    /// Something was done.
    Done {},
    /// A report, as JSON in the file that came with this, to be read from its beginning.
    Report {},
    /// It was not done.
    Refused(Refused),
}

/// A grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// Its number, as requests name it.
    pub grant: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Offsets and lengths of requests are multiples of so many bytes.
    pub block: u32,
    /// What it allows.
    pub access: Access,
    /// The device it is on, by its name.
    pub device: String,
    /// None: it can be mapped. Else why not.
    pub not_mapped: Option<String>,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// For programs.
    pub code: Code,
    /// For people: what was wrong, and what to do.
    pub message: String,
}

/// What kind of refusal it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// The message is none, or cannot come now.
    Malformed,
    /// The two ends speak different versions.
    Version,
    /// The client may not do that.
    Denied,
    /// There is no such volume, device or grant.
    Missing,
    /// There is such a volume already.
    Exists,
    /// What was given cannot be used for that.
    Unfit,
    /// As many are there as may be: clients, grants, channels, bytes.
    Limit,
    /// The device has no room.
    Full,
    /// The server failed, or what it uses.
    Failed,
}

/// What came is no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no message of this protocol: {0}")]
pub struct NotAMessage(String);

fn to_bytes(message: &impl Serialize) -> Result<Vec<u8>, NotAMessage> {
    let bytes = serde_json::to_vec(message).map_err(|error| NotAMessage(error.to_string()))?;
    match bytes.len() {
        0..=MESSAGE_BYTES_MAX => Ok(bytes),
        length => Err(NotAMessage(format!("{length} bytes are more than {MESSAGE_BYTES_MAX}"))),
    }
}

fn of_bytes<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, NotAMessage> {
    serde_json::from_slice(bytes).map_err(|error| NotAMessage(error.to_string()))
}

impl Ask {
    /// The packet.
    ///
    /// # Errors
    /// If it is longer than [`MESSAGE_BYTES_MAX`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, NotAMessage> {
        to_bytes(self)
    }

    /// Out of a packet.
    ///
    /// # Errors
    /// Why it is none.
    pub fn of_bytes(bytes: &[u8]) -> Result<Ask, NotAMessage> {
        of_bytes(bytes)
    }

    /// Whether only the server's own user and root may ask that.
    pub fn is_for_administrators(&self) -> bool {
        matches!(
            self,
            Ask::Create { .. }
                | Ask::Resize { .. }
                | Ask::Rename { .. }
                | Ask::Permit { .. }
                | Ask::Remove { .. }
                | Ask::Revoke { .. }
        )
    }
}

impl Answer {
    /// The packet.
    ///
    /// # Errors
    /// If it is longer than [`MESSAGE_BYTES_MAX`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, NotAMessage> {
        to_bytes(self)
    }

    /// Out of a packet.
    ///
    /// # Errors
    /// Why it is none.
    pub fn of_bytes(bytes: &[u8]) -> Result<Answer, NotAMessage> {
        of_bytes(bytes)
    }
}

impl Refused {
    /// With a message, which is cut where it would not fit into a packet.
    pub fn new(code: Code, message: impl fmt::Display) -> Refused {
        let mut message = message.to_string();
        if message.len() > MESSAGE_TEXT_MAX {
            let end = (0..=MESSAGE_TEXT_MAX).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
            message.truncate(end);
        }
        Refused { code, message }
    }
}

/// In JSON a byte takes six at most.
const MESSAGE_TEXT_MAX: usize = (MESSAGE_BYTES_MAX - 256) / 6;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_messages() {
        for (ask, golden) in [
            (Ask::Hello { version: 1, name: "x".into() }, r#"{"ask":"hello","version":1,"name":"x"}"#),
            (Ask::OpenDescriptor {}, r#"{"ask":"open-descriptor"}"#),
            (Ask::Close { grant: 1 << 32 }, r#"{"ask":"close","grant":4294967296}"#),
            (Ask::Channel {}, r#"{"ask":"channel"}"#),
            (Ask::Map { grant: 7, from: 16 }, r#"{"ask":"map","grant":7,"from":16}"#),
        ] {
            assert_eq!(ask.to_bytes().unwrap(), golden.as_bytes());
            assert_eq!(Ask::of_bytes(golden.as_bytes()), Ok(ask));
        }
        let granted = Granted {
            grant: 5,
            bytes: 4096,
            block: 512,
            access: Access::Read,
            device: "fast".into(),
            not_mapped: None,
        };
        let golden = r#"{"answer":"granted","grant":5,"bytes":4096,"block":512,"access":"read","device":"fast","not_mapped":null}"#;
        assert_eq!(Answer::Granted(granted.clone()).to_bytes().unwrap(), golden.as_bytes());
        assert_eq!(Answer::of_bytes(golden.as_bytes()), Ok(Answer::Granted(granted)));
        let refused = Answer::Refused(Refused::new(Code::Denied, "no"));
        let golden = r#"{"answer":"refused","code":"denied","message":"no"}"#;
        assert_eq!(refused.to_bytes().unwrap(), golden.as_bytes());
    }

    #[test]
    fn rubbish_is_named() {
        for rubbish in
            ["", "{", "[]", r#"{"ask":"fly"}"#, r#"{"ask":"open"}"#, r#"{"ask":"close","grant":1,"x":2}"#]
        {
            let error = Ask::of_bytes(rubbish.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("it is no message"), "{error}");
        }
        let long = Ask::Open { volume: "x".repeat(MESSAGE_BYTES_MAX), access: Access::Read };
        assert!(long.to_bytes().unwrap_err().to_string().contains("more than"));
    }

    #[test]
    fn whatever_is_said_of_a_refusal_fits() {
        for text in ["\u{1}", "é", "\"", "x"] {
            let refused = Answer::Refused(Refused::new(Code::Failed, text.repeat(10_000)));
            let bytes = refused.to_bytes().unwrap();
            assert!(bytes.len() > MESSAGE_TEXT_MAX && Answer::of_bytes(&bytes) == Ok(refused));
        }
    }

    proptest! {
        #[test]
        fn nothing_that_comes_is_worse_than_an_error(bytes: Vec<u8>) {
            let _ = Ask::of_bytes(&bytes);
            let _ = Answer::of_bytes(&bytes);
        }
    }
}
